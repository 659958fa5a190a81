// Command cl-bridge runs a CodaLab server's bundles as Slurm jobs.
package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func main() { program.Main(run) }

const about = `cl-bridge claims bundles from a CodaLab server and runs each as a Slurm job.

It runs on a login node as an ordinary user. Jobs continue when it stops, and it
takes them up again when it starts on the same ledger. cl-bridge status shows the
state of the bridge, and cl-bridge explain the phase of a bundle and its reason.

Exit codes: 0 ended by a signal; 1 refused or failed; 2 the command line or the
configuration is wrong; 3 the server did not answer, try again later; 4 the
server refused the login, or the user: correct that before another try.`

func run(ctx context.Context, p program.Process) error {
	root := program.Root(p, "cl-bridge", "Run a CodaLab server's bundles as Slurm jobs", about)
	for _, add := range []func(program.Process) *cobra.Command{
		initCommand, doctorCommand, runCommand, replayCommand, statusCommand, explainCommand, logsCommand, planCommand, drainCommand, resumeCommand, reportCommand, recoverCommand, sweepCommand, cacheCommand, imageCommand, keptCommand, configCommand,
	} {
		root.AddCommand(add(p))
	}
	return withExitCode(root.ExecuteContext(ctx))
}

// parentOf returns a command that only has subcommands. Without one it prints its help.
func parentOf(use, short, long string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(subs...)
	return cmd
}
