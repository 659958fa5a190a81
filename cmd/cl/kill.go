package main

import (
	"context"
	"strings"

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
	specs, err := expandSpecs(specs)
	if err != nil {
		return err
	}
	at, err := c.workspace(worksheet)
	if err != nil {
		return err
	}
	uuids, err := at.resolve(ctx, specs)
	if err != nil {
		return err
	}
	if err := c.print(strings.Join(uuids, "\n")); err != nil {
		return err
	}
	return at.KillBundles(ctx, uuids...)
}
