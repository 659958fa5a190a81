package main

import "github.com/spf13/cobra"

const exitCodesHelp = `The exit codes of cl:

    0  done
    1  refused or failed, with the reason on standard error; or the bundle for
       which cl waited has failed or was killed
    2  there is no such command or flag, or a flag has no such value
    3  the server does not answer or has an internal problem: the same command
       may succeed later
  130  interrupted

cl diff has those of diff: 0 the same, 1 different, 2 trouble; and 3 as above.`

const environmentHelp = `The environment variables that cl uses:

  CODALAB_USERNAME, CODALAB_PASSWORD
                   your name and password; without them cl asks on a terminal
  CL_SERVER        address of the server, instead of the one that cl work set
  CODALAB_HOME     directory of cl's state and tokens, which only you can read;
                   default ~/.codalab
  CODALAB_SESSION  name of the session that cl work switches; by default all
                   terminals share one

  CL_NOTIFY_WEBHOOK
                   URL for cl wait --notify webhook

  EDITOR, VISUAL   the editor for cl edit and cl wedit; default vi
  NO_COLOR         if set, no colours; CLICOLOR_FORCE=1: colours also in pipes

Without cl work and CL_SERVER the server is that of cl config
cli/default_address, or else http://127.0.0.1:2900.`

const fieldsHelp = `The fields of bundles, for -f of cl info, cl ls and cl search:

  uuid name bundle_type state command owner created data_size
  state_details     the reason of its wait or its failure, in a sentence
  failure_message exitcode     the reason of its failure
  run_status staged_status     the reason of a run's wait
  remote remote_history        where it runs, and ran
  job_handle                   its Slurm job
  time time_user time_system memory memory_max cpu_usage memory_usage
                    its use of resources
  time_staging time_queued time_allocated cpu_hours gpu_hours
  gpu_usage gpu_memory_max energy efficiency
                    its cost: waits, the time for which it had its CPUs and
                    GPUs, the shares of them that it used, and its energy in
                    joules, where its site measures that
  docker_image      its image, by digest
  request_...       its requests; args: the command line that makes it
  secrets           the names of its secrets
  dependencies dependencies/<key>     its inputs, one input
  summary description tags frozen is_anonymous license source_url
  permission group_permissions host_worksheets children
  /<path>           the text of a file of the bundle
  /<path>:<key>/<key>  a value in a JSON or YAML file, such as
                    /stats.json:test/error
  /<path>:<key>     the value after a key in a file of lines KEY<tab>VALUE
  /<path>:-1:<key>  the value in the last line of a .jsonl file, or in the last
                    row of a .csv file: /log.jsonl:-1:loss

Values of files are keywords of searches, too: /stats.json:acc=.sort-.`

// topics are help topics that are no commands.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "The exit codes of cl", Long: exitCodesHelp},
		{Use: "environment", Short: "The environment variables of cl", Long: environmentHelp},
		{Use: "fields", Short: "The fields of bundles", Long: fieldsHelp},
	}
}
