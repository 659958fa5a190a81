package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// rmCommand is bundle_cli.py: do_rm_command.
func (c *cli) rmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm <bundle>...", Short: "Delete bundles, for ever",
		Long: `Delete bundles with their contents, for ever, and print their uuids. A bundle on
which others depend, that is on several worksheets, or that still runs stays
unless you say more; cl kill ends a run first. A sweep stands for all of its runs.`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	var o client.DeleteOptions
	cmd.Flags().BoolVar(&o.Force, "force", false, "also bundles on which others depend, which then lack them")
	cmd.Flags().BoolVarP(&o.Recursive, "recursive", "r", false, "also all bundles that depend on them")
	cmd.Flags().BoolVarP(&o.DataOnly, "data-only", "d", false, "only the contents: keep the bundles")
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "i", false, "delete nothing, and list the bundles that would be deleted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.removeBundles(cmd.Context(), *worksheet, args, o)
	}
	return cmd
}

func (c *cli) removeBundles(ctx context.Context, worksheet string, specs []string, o client.DeleteOptions) error {
	at, uuids, err := c.bundlesAndSweeps(ctx, worksheet, specs, anyRun)
	if err != nil {
		return err
	}
	deleted, err := at.DeleteBundles(ctx, uuids, o)
	if err != nil {
		return err
	}
	if !o.DryRun || c.asJSON {
		return c.printUUIDs(deleted)
	}
	sheet, err := at.worksheetUUID(ctx)
	if err != nil {
		return err
	}
	bundles, err := at.Bundles(ctx, sheet, deleted, client.IncludeOwner)
	if err != nil {
		return err
	}
	if err := c.print("This command would permanently remove the following bundles (not doing so yet):"); err != nil {
		return err
	}
	t, err := at.table(ctx, bundles, strings.Split(lsFields, ","))
	if err != nil {
		return err
	}
	return t.print(c.Stdout)
}
