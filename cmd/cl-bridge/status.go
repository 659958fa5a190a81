package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/status"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutStatus = `status says whether a bridge runs, how many bundles it has in which phase, what
holds it up, how much room the shared disk has, for what bundles wait, and which one
has waited longest. It reads the ledger and the bridge's last heartbeat, and changes
nothing. On a host that cannot read the ledger's file it says what the bridge wrote last
in the shared directory. cl-bridge explain says more about one bundle.

Exit codes: 1 no ledger; 2 the command line or the configuration is wrong; 3 the
ledger's server does not answer.`

func statusCommand(p program.Process) *cobra.Command {
	return siteCommand(p, "status", "Say whether the bridge runs, what it has, and what holds it up", aboutStatus, cobra.NoArgs,
		func(ctx context.Context, s *site, _ []string) error {
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			found, err := status.Collect(ctx, s.Config, host, s.Now())
			if err != nil {
				return err
			}
			return s.print(found, found.Text(s.Now()))
		})
}
