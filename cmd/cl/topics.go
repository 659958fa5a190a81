package main

import "github.com/spf13/cobra"

const exitCodesHelp = `The exit codes of cl:

    0  done
    1  refused or failed; the line on standard error says why. Also: the bundle
       for which cl waited has failed or was killed
    2  the command line cannot be understood
    3  the server does not answer or has an internal problem: the same command
       may succeed later
  130  interrupted`

const environmentHelp = `The environment variables that cl uses:

  CODALAB_USERNAME, CODALAB_PASSWORD
                   your name and password; without them cl asks on a terminal
  CL_SERVER        address of the server, instead of the one that cl work set
  CODALAB_HOME     directory of cl's state and tokens, which only you can read;
                   default ~/.codalab
  CODALAB_SESSION  name of the session that cl work switches; by default all
                   terminals share one

Without cl work and CL_SERVER the server is http://127.0.0.1:2900.`

// topics are the help topics beside the commands.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "The exit codes of cl", Long: exitCodesHelp},
		{Use: "environment", Short: "The environment variables of cl", Long: environmentHelp},
	}
}
