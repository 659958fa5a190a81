package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/status"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutStatus = `status shows whether a bridge runs, the number of its bundles in each phase, its
obstacles, the room on the shared disk, the causes of waits, and the bundle that has
waited longest. It reads the ledger and the bridge's last heartbeat, and changes
nothing. On a host that cannot read the ledger's file it shows the bridge's last record
in the shared directory. cl-bridge explain shows more about one bundle.

Exit codes: 1 no ledger; 2 the command line or the configuration is wrong; 3 the
ledger's server does not answer.`

func statusCommand(p program.Process) *cobra.Command {
	return siteCommand(p, "status", "Show whether the bridge runs, its bundles and its obstacles", aboutStatus, cobra.NoArgs,
		func(ctx context.Context, s *site, _ []string) error {
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			found, err := status.Collect(ctx, s.Config, host, s.Now())
			if err != nil {
				return err
			}
			return s.print(found, status.Text(found, s.Now()))
		})
}
