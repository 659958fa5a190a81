package main

import "github.com/spf13/cobra"

const exitCodesHelp = `The exit codes of cl:

    0  done
    1  refused or failed; the line on standard error says why. Also: the bundle
       that was waited for has failed or was killed
    2  the command line cannot be understood
    3  the server does not answer or is in trouble: the same command may
       succeed later
  130  interrupted`

const environmentHelp = `What cl takes from its environment:

  CODALAB_USERNAME, CODALAB_PASSWORD
                   who you are; otherwise cl asks, where there is a terminal
  CL_SERVER        address of the server, before the one that cl work has set
  CODALAB_HOME     where cl keeps its state and tokens, readable by you alone;
                   ~/.codalab by default
  CODALAB_SESSION  name of the session that cl work switches; one for all
                   terminals by default

Without cl work and CL_SERVER the server is http://127.0.0.1:2900.`

// topics are what `cl help` tells beside the commands.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp},
		{Use: "environment", Short: "What cl takes from its environment", Long: environmentHelp},
	}
}
