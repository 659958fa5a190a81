package main

import (
	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/status"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutStatus = `status says whether a bridge runs, how many bundles it has in which phase, what
holds it up, how much room the shared disk has, and which bundle has waited longest.
It reads the ledger and the bridge's last heartbeat, and changes nothing.
cl-bridge explain says more about one bundle.

Exit codes: 1 no ledger; 2 the command line or the configuration is wrong; 3 the
ledger's server does not answer.`

func statusCommand(p program.Process) *cobra.Command {
	var o struct {
		siteFlags
		json bool
	}
	cmd := &cobra.Command{
		Use: "status", Short: "Say whether the bridge runs, what it has, and what holds it up", Long: aboutStatus,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.read(p)
			if err != nil {
				return err
			}
			s, err := status.Collect(cmd.Context(), c, func(bridge string) (string, error) { return heartbeatFile(p, c, bridge) })
			if err != nil {
				return unavailable(err)
			}
			return printFound(p, o.json, s, s.Text(p.Now()))
		},
	}
	o.flags(cmd, p)
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}
