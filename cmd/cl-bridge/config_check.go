package main

import (
	"context"
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
	live := false
	check := siteCommand(p, "check", "Say whether a configuration can be read; with --live, whether what it names is there", aboutCheck, cobra.NoArgs,
		func(ctx context.Context, s *site, _ []string) error {
			if live {
				return examination{}.run(ctx, s)
			}
			if s.json {
				return program.Usage(errors.New("--json goes with --live"))
			}
			return s.print(nil, fmt.Sprintf("%s: %d queues, no mistake in the file; --live checks what it names\n", s.Path, len(s.Queue)))
		})
	check.Flags().BoolVar(&live, "live", false, "check the server, Slurm and the disks too")
	check.Flags().Lookup("json").Usage = "with --live, print JSON"
	return parentOf("config", "Look at a configuration", "", check)
}
