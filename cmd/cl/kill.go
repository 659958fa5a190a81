package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// killCommand is bundle_cli.py: do_kill_command.
func (c *cli) killCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kill <bundle>...",
		Short: "End running bundles and keep what they have written",
		Long: "End running bundles and keep what they have written, and print the uuids of these\n" +
			"bundles. A sweep stands for its runs that have not ended.",
		Args: cobra.MinimumNArgs(1),
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.killBundles(cmd.Context(), *worksheet, args)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

// killBundles kills each bundle with a call of its own, and prints the killed ones. If one bundle of a
// call has ended, cl-server kills none of them, and CodaLab's own server only those before it.
func (c *cli) killBundles(ctx context.Context, worksheet string, specs []string) error {
	at, uuids, err := c.bundlesAndSweeps(ctx, worksheet, specs, func(b client.BundleInfo) bool { return !b.State.Final() })
	if err != nil {
		return err
	}
	killed := []string{}
	var failed error
	for i, uuid := range uuids {
		err := at.KillBundles(ctx, uuid)
		switch {
		case err == nil:
			killed = append(killed, uuid)
			continue
		case !transient(err) && ctx.Err() == nil && len(uuids) > 1:
			c.warn("%s: %v", uuid, explain(err))
			failed = &program.Error{Code: program.ExitFailure}
			continue
		case i+1 < len(uuids):
			c.warn("Not tried: %s", strings.Join(uuids[i+1:], " "))
		}
		failed = err
		break
	}
	if len(killed) == 0 && !c.asJSON {
		return failed
	}
	return errors.Join(c.printUUIDs(killed), failed)
}
