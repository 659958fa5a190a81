package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// killCommand is bundle_cli.py: do_kill_command.
func (c *cli) killCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kill <bundle>...",
		Short: "End running bundles and keep what they have written",
		Args:  cobra.MinimumNArgs(1),
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.killBundles(cmd.Context(), *worksheet, args)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

// killBundles kills each bundle, also if others have ended already, and prints those that it killed.
func (c *cli) killBundles(ctx context.Context, worksheet string, specs []string) error {
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, specs)
	if err != nil {
		return err
	}
	// One call for all, and one for each if the server refuses that: it kills all or none.
	err = at.KillBundles(ctx, uuids...)
	if err == nil || len(uuids) == 1 || !isStatus(err, http.StatusBadRequest) {
		if err != nil {
			return err
		}
		return c.printUUIDs(uuids)
	}
	var killed []string
	var failed error
	for _, uuid := range uuids {
		switch err := at.KillBundles(ctx, uuid); {
		case err == nil:
			killed = append(killed, uuid)
		case ctx.Err() != nil:
			return err
		default:
			c.note("%v", explain(err))
			failed = &program.Error{Code: program.ExitFailure}
		}
	}
	return errors.Join(c.printUUIDs(killed), failed)
}
