package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutCheck = `check reads a configuration and says what is wrong in it. With --live it also makes
the checks of cl-bridge doctor, except for the jobs, and ends with doctor's exit codes.
It changes nothing.`

// configCommand looks at a configuration.
func configCommand(p program.Process) *cobra.Command {
	var o doctorOptions
	live := false
	check := &cobra.Command{
		Use: "check", Short: "Say whether a configuration can be read; with --live, whether what it names is there",
		Long: aboutCheck, Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if live {
				return o.run(cmd.Context(), p)
			}
			if o.json {
				return &program.Error{Code: program.ExitUsage, Err: errors.New("--json goes with --live")}
			}
			c, err := o.read(p)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, "%s: %d queues, no mistake in the file; --live checks what it names\n", c.Path, len(c.Queue))
			return err //nolint:wrapcheck // standard output is gone
		},
	}
	o.flags(check, p)
	check.Flags().BoolVar(&live, "live", false, "check the server, Slurm and the disks too")
	check.Flags().BoolVar(&o.json, "json", false, "with --live, print JSON")
	return parentOf("config", "Look at a configuration", "", check)
}
