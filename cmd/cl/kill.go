package main

import (
	"context"

	"github.com/spf13/cobra"
)

// killCommand is bundle_cli.py: do_kill_command.
func (c *cli) killCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kill <bundle>...",
		Short: "End running bundles and keep what they have written",
		Args:  cobra.MinimumNArgs(1),
	}
	worksheet := worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.killBundles(cmd.Context(), *worksheet, args)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

func (c *cli) killBundles(ctx context.Context, worksheet string, specs []string) error {
	at, uuids, err := c.resolveBundles(ctx, worksheet, specs)
	if err != nil {
		return err
	}
	for _, uuid := range uuids {
		if err := c.print(uuid); err != nil {
			return err
		}
	}
	return at.KillBundles(ctx, uuids...)
}

// resolveBundles resolves bundles on one worksheet, and expands ranges.
func (c *cli) resolveBundles(ctx context.Context, worksheet string, specs []string) (*workspace, []string, error) {
	specs, err := expandSpecs(specs)
	if err != nil {
		return nil, nil, err
	}
	at, err := c.workspace(worksheet)
	if err != nil {
		return nil, nil, err
	}
	uuids, err := at.resolve(ctx, specs)
	return at, uuids, err
}
