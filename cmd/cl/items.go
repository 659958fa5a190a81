package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const addHelp = `Append items to a worksheet.

  add text <text>...            markdown; a text that begins with % is a directive
  add bundle <bundle>...        bundles, also of another server: these are copied
  add worksheet <worksheet>...  links to worksheets

Without --dest-worksheet the items come to the current worksheet.`

// addCommand is bundle_cli.py: do_add_command.
func (c *cli) addCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add (text|bundle|worksheet) <item>...", Short: "Append texts, bundles or worksheets to a worksheet", Long: addHelp,
		Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			switch {
			case len(args) == 0:
				return completeWords("text", "bundle", "worksheet")(cmd, args, begun)
			case args[0] == "worksheet":
				return c.completeWorksheets(cmd, args, begun)
			}
			return c.completeBundles(cmd, args, begun)
		},
	}
	dest := cmd.Flags().String("dest-worksheet", ".", "append to this worksheet: [<address>::](<uuid>|<name>)")
	_ = cmd.RegisterFlagCompletionFunc("dest-worksheet", c.completeWorksheets) // the flag is there
	dependencies := cmd.Flags().BoolP("copy-dependencies", "d", false, "with bundles: also append their dependencies")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kinds := []string{"text", "bundle", "worksheet"}
		switch {
		case !slices.Contains(kinds, args[0]):
			return commandLineError(cmd, fmt.Errorf("%q is no type of item: want text, bundle or worksheet%s", args[0], argparse.DidYouMean("", argparse.Nearest(args[0], kinds))))
		case *dependencies && args[0] != "bundle":
			return refusef("-d/--copy-dependencies flag only applies when adding bundles.")
		}
		to, uuid, err := c.openWorksheet(cmd.Context(), *dest)
		if err != nil {
			return err
		}
		switch args[0] {
		case "text":
			return c.addTexts(cmd.Context(), to, uuid, args[1:])
		case "bundle":
			return c.addBundles(cmd.Context(), to, uuid, args[1:], *dependencies)
		}
		return c.addWorksheets(cmd.Context(), to, uuid, args[1:])
	}
	return cmd
}

func (c *cli) addTexts(ctx context.Context, to *workspace, uuid string, texts []string) error {
	items := make([]client.Item, 0, len(texts))
	for _, text := range texts {
		items = append(items, textItem(text))
	}
	if err := to.AddItems(ctx, uuid, items, false); err != nil {
		return err
	}
	return c.added(uuid, len(items))
}

// added prints the number of new items with --json; CodaLab's cl prints nothing.
func (c *cli) added(worksheet string, items int) error {
	if !c.asJSON {
		return nil
	}
	return c.printJSON(map[string]any{"worksheet": worksheet, "items": items})
}

func (c *cli) addBundles(ctx context.Context, to *workspace, uuid string, specs []string, dependencies bool) error {
	var places []*workspace
	var targets []codalab.Target
	for _, spec := range specs { // first all of them are found, then they are added
		from, target, err := c.target(ctx, "", spec)
		if err != nil {
			return err
		}
		places, targets = append(places, from), append(targets, target)
	}
	var here []string // the last ones that are on this server
	for i, target := range targets {
		if places[i].Address() == to.Address() && !dependencies {
			here = append(here, target.BundleUUID)
			continue
		}
		if err := c.addBundlesOf(ctx, to, uuid, here); err != nil {
			return err
		}
		here = nil
		if err := c.copyBundle(ctx, places[i], target.BundleUUID, to, uuid, copyOptions{dependencies: dependencies, add: true}); err != nil {
			return err
		}
	}
	if err := c.addBundlesOf(ctx, to, uuid, here); err != nil {
		return err
	}
	return c.added(uuid, len(specs))
}

// addBundlesOf adds bundles of a server to a worksheet there; there may be none.
func (c *cli) addBundlesOf(ctx context.Context, to *workspace, worksheet string, uuids []string) error {
	if len(uuids) == 0 {
		return nil
	}
	if _, err := to.Bundles(ctx, worksheet, uuids); err != nil {
		return err
	}
	items := make([]client.Item, 0, len(uuids))
	for _, uuid := range uuids {
		items = append(items, bundleItem(uuid))
	}
	return to.AddItems(ctx, worksheet, items, false)
}

func (c *cli) addWorksheets(ctx context.Context, to *workspace, uuid string, specs []string) error {
	var items []client.Item
	for _, spec := range specs {
		from, w, err := c.worksheet(ctx, spec)
		if err != nil {
			return err
		}
		if from.Address() != to.Address() {
			return refusef("You cannot add worksheet links across instances.")
		}
		items = append(items, client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemWorksheet}, Worksheet: &w})
	}
	if err := to.AddItems(ctx, uuid, items, false); err != nil {
		return err
	}
	return c.added(uuid, len(items))
}

// detachCommand is bundle_cli.py: do_detach_command.
func (c *cli) detachCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "detach <bundle>...", Aliases: []string{"de"}, Short: "Take bundles off a worksheet",
		Long: "Take bundles off a worksheet, but keep them. cl search .floating lists the bundles\nthat are on none.",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	index := cmd.Flags().IntP("index", "n", 0, "of a bundle that is there several times, take this one off, counted from the end (1, 2, ...)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("index") && *index < 1 {
			return refusef("--index counts from 1, the last one; it cannot be %d", *index)
		}
		return c.detachBundles(cmd.Context(), *worksheet, args, *index)
	}
	return cmd
}

func (c *cli) detachBundles(ctx context.Context, worksheet string, specs []string, index int) error {
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, specs)
	if err != nil {
		return err
	}
	sheet, err := at.worksheetUUID(ctx)
	if err != nil {
		return err
	}
	w, err := at.WorksheetItems(ctx, sheet)
	if err != nil {
		return err
	}
	places := map[string][]string{} // the ids of a bundle's items, the last one first
	for _, item := range slices.Backward(w.Items) {
		if item.Bundle != nil {
			places[item.Bundle.UUID] = append(places[item.Bundle.UUID], item.ID)
		}
	}
	var remove []string
	for _, uuid := range slices.Compact(slices.Sorted(slices.Values(uuids))) {
		items := places[uuid]
		switch n := len(items); {
		case n == 0:
			return refusef("bundle %s is not on the worksheet %s", uuid, w.Name)
		case index == 0 && n > 1:
			return refusef("bundle %s shows up more than once, need to specify index", uuid)
		case index > n:
			return refusef("bundle %s shows up %d times, can't get index %d", uuid, n, index)
		}
		remove = append(remove, items[max(index, 1)-1])
	}
	if err := at.RemoveItems(ctx, sheet, remove); err != nil {
		return err
	}
	if c.asJSON {
		return c.printUUIDs(uuids)
	}
	return nil
}

// waddCommand is bundle_cli.py: do_wadd_command.
func (c *cli) waddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wadd <source worksheet> <destination worksheet>", Short: "Append a worksheet's items to another worksheet",
		Long: "Append all items of a worksheet to another one, which may be on another server:\n" +
			"bundles that are not there are copied. Bundles that have not ended are left out.",
		Args: cobra.ExactArgs(2), ValidArgsFunction: c.completeWorksheets,
	}
	replace := cmd.Flags().BoolP("replace", "r", false, "replace the destination's items; no bundle is deleted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.copyWorksheet(cmd.Context(), args[0], args[1], *replace)
	}
	return cmd
}

func (c *cli) copyWorksheet(ctx context.Context, source, destination string, replace bool) error {
	from, sheet, err := c.openWorksheet(ctx, source)
	if err != nil {
		return err
	}
	w, err := from.WorksheetItems(ctx, sheet)
	if err != nil {
		return err
	}
	to, uuid, err := c.openWorksheet(ctx, destination)
	if err != nil {
		return err
	}
	var items []client.Item
	for _, item := range w.Items {
		if b := item.Bundle; item.Type == codalab.ItemBundle && b != nil && b.State != codalab.StateReady && b.State != codalab.StateFailed {
			if err := c.printUnlessJSON("Skipping bundle %s because it has non-final state %s", b.UUID, pythonState(b.State)); err != nil {
				return err
			}
			continue
		}
		if item.Worksheet != nil && from.Address() != to.Address() {
			if err := c.printUnlessJSON("Skipping worksheet %s because it is on another server", item.Worksheet.UUID); err != nil {
				return err
			}
			continue
		}
		items = append(items, item)
	}
	// The bundles are copied first, so that no item shows a missing bundle.
	for _, item := range items {
		if item.Type == codalab.ItemBundle && item.Bundle != nil && from.Address() != to.Address() {
			if err := c.copyBundle(ctx, from, item.Bundle.UUID, to, uuid, copyOptions{}); err != nil {
				return err
			}
		}
	}
	if err := to.AddItems(ctx, uuid, items, replace); err != nil {
		return err
	}
	return c.printResult(map[string]any{"worksheet": uuid, "items": len(items)}, "Copied %d worksheet items to %s.", len(items), uuid)
}

// pythonState returns Python's text of a state, which a private bundle does not have.
func pythonState(s codalab.State) string {
	if s == "" {
		return codalab.PythonStr(nil)
	}
	return string(s)
}

// bundleItem is the item that shows a bundle.
func bundleItem(uuid string) client.Item {
	return client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemBundle}, Bundle: &client.BundleInfo{Bundle: codalab.Bundle{UUID: uuid}}}
}
