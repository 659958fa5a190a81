package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const rmHelp = `Delete bundles with their contents, for ever, and print their uuids. A bundle on
which others depend, that is on several worksheets, or that still runs stays
unless you say more; cl kill ends a run first. A sweep stands for all of its runs.

--older and --state choose among your own bundles, or those of them on the
worksheet of -w. cl shows what it has chosen and what stays, with the reason, and
asks; without a terminal it needs --yes. Nothing goes that it has not shown.

  cl rm --older 30d --state failed --dry-run
  cl rm --state failed,killed -w SHEET`

// rmCommand is bundle_cli.py: do_rm_command.
func (c *cli) rmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm <bundle>...", Short: "Delete bundles, for ever", Long: rmHelp, ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	var o client.DeleteOptions
	var choice rmChoice
	cmd.Flags().BoolVar(&o.Force, "force", false, "also bundles on which others depend, which then lack them")
	cmd.Flags().BoolVarP(&o.Recursive, "recursive", "r", false, "also all bundles that depend on them")
	cmd.Flags().BoolVarP(&o.DataOnly, "data-only", "d", false, "only the contents: keep the bundles")
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "i", false, "delete nothing, and list the bundles that would be deleted")
	choice.flags(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if choice.given() {
			return nil
		}
		return cobra.MinimumNArgs(1)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		before, err := c.checkChoice(choice, args, o)
		switch {
		case err != nil:
			return err
		case choice.given():
			return c.removeChosen(cmd.Context(), *worksheet, choice, before, o)
		}
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
		return at.withDependents(ctx, uuids, o, err)
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
	if err := t.print(c.Stdout); err != nil {
		return err
	}
	c.warn("Together %s, %s.", bundleCount(len(bundles)), codalab.FormatSize(addUp(bundles).Bytes))
	return nil
}

// withDependents returns the refusal to delete bundles, with the bundles that depend on them and the ways out if these are the
// reason. A server names them all, in a line each.
func (w *workspace) withDependents(ctx context.Context, uuids []string, o client.DeleteOptions, refusal error) error {
	if !codalab.IsStatus(refusal, 400) || o.Force || o.Recursive {
		return refusal
	}
	found, err := w.Descendants(ctx, uuids, 1)
	if err != nil {
		return refusal
	}
	var needed []string
	for _, uuid := range uuids {
		others := slices.DeleteFunc(dependentsOf(found, uuid), func(b client.BundleInfo) bool { return slices.Contains(uuids, b.UUID) })
		if len(others) == 0 {
			continue
		}
		name := uuid
		if i := slices.IndexFunc(found, func(b client.BundleInfo) bool { return b.UUID == uuid }); i >= 0 {
			name = found[i].Metadata.String("name") + "(" + shortUUID(uuid) + ")"
		}
		needed = append(needed, name+": "+spellDependents(others))
	}
	if len(needed) == 0 {
		return refusal
	}
	more := ""
	if n := len(needed) - namedDependents; n > 0 {
		more = fmt.Sprintf("; so are %s more", bundleCount(n))
	}
	return refusef("Others depend on what you remove: %s%s. -r removes these, too; --force leaves them without it.",
		strings.Join(first(needed, namedDependents), "; "), more)
}
