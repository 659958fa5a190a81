package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// worksheet returns the worksheet that a spec names.
func (c *cli) worksheet(ctx context.Context, spec string) (*workspace, client.Worksheet, error) {
	at, err := c.workspace(spec)
	if err != nil {
		return nil, client.Worksheet{}, err
	}
	w, err := at.fetch(ctx)
	return at, w, err
}

// newCommand is bundle_cli.py: do_new_command.
func (c *cli) newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "new <name>", Short: "Create a worksheet",
		Long: "Create a worksheet, and print its uuid. cl work <name> makes it the current one.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkName(args[0]); err != nil {
			return err
		}
		at, err := c.workspace(*worksheet)
		if err != nil {
			return err
		}
		w, err := at.CreateWorksheet(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return c.printUUID(w.UUID)
	}
	return cmd
}

// wlsCommand is bundle_cli.py: do_wls_command.
func (c *cli) wlsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wls [<keyword>...]", Aliases: []string{"wsearch", "ws"}, Short: "Search for worksheets",
		Long: `List the worksheets that match all keywords; your own come first.

  wls paper           name, title or uuid has this word
  wls tag=paper       tagged as paper
  wls name=X title=X owner=X uuid=X bundle=X worksheet=X
                      with this name, title, owner, uuid, bundle or
                      subworksheet; % stands for any letters
  wls group=lab       shared with the group lab
  wls .shared         shared with any of your groups
  wls .mine           your own; .notmine: those of others
  wls .limit=50       up to 50 worksheets; default 10
  wls .offset=50      from the 51st on
  wls name=.sort      sorted by name; .sort- from the end; .last: newest first`,
		ValidArgsFunction: completeWords(".mine", ".notmine", ".shared", ".last", ".limit=", ".offset=", "name=", "title=", "owner=", "tag=", "group=", "bundle=", "worksheet="),
	}
	address := cmd.Flags().StringP("address", "a", "", "search on this server: an address or an alias")
	uuidOnly := cmd.Flags().BoolP("uuid-only", "u", false, "print only uuids")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		spec := ""
		if *address != "" {
			spec = *address + "::"
		}
		at, err := c.workspace(spec)
		if err != nil {
			return err
		}
		found, err := at.SearchWorksheets(cmd.Context(), args...)
		if err != nil {
			return err
		}
		return c.listWorksheets(found, *uuidOnly, args)
	}
	return cmd
}

// worksheetRow is a worksheet in a list, in JSON.
type worksheetRow struct {
	UUID             string           `json:"uuid"`
	Name             string           `json:"name"`
	Title            *string          `json:"title"`
	Tags             []string         `json:"tags"`
	Owner            *userView        `json:"owner"`
	Frozen           *string          `json:"frozen"`
	IsAnonymous      bool             `json:"is_anonymous"`
	GroupPermissions []permissionView `json:"group_permissions"`
}

func viewWorksheet(w client.Worksheet) worksheetRow {
	return worksheetRow{
		UUID: w.UUID, Name: w.Name, Title: w.Title, Tags: append([]string{}, w.Tags...), Owner: viewUser(w.Owner), Frozen: w.Frozen,
		IsAnonymous: w.IsAnonymous, GroupPermissions: append([]permissionView{}, viewPermissions(w.GroupPermissions)...),
	}
}

func (c *cli) listWorksheets(found []client.Worksheet, uuidOnly bool, keywords []string) error {
	views := []worksheetRow{}
	var uuids []string
	var rows [][]string
	for _, w := range found {
		views = append(views, viewWorksheet(w))
		uuids = append(uuids, w.UUID)
		rows = append(rows, []string{shortUUID(w.UUID), w.Name, userText(w.Owner), groupsText(w.GroupPermissions)})
	}
	switch {
	case c.asJSON && !uuidOnly:
		return c.printJSON(views)
	case uuidOnly:
		return c.printUUIDs(uuids)
	case len(found) == 0:
		c.warn("No results found")
		return nil
	}
	c.noteLimit(len(found), keywords)
	return printTable(c.Stdout, []column{{name: "uuid"}, {name: "name"}, {name: "owner"}, {name: "permissions"}}, rows)
}

// shortUUID is a uuid in a table.
func shortUUID(uuid string) string { return uuid[:min(8, len(uuid))] }

// wrmCommand is bundle_cli.py: do_wrm_command.
func (c *cli) wrmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wrm <worksheet>...", Short: "Delete worksheets",
		Long: "Delete worksheets, but not the bundles on them.",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeWorksheets,
	}
	force := cmd.Flags().Bool("force", false, "also if one has items or is frozen")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.removeWorksheets(cmd.Context(), args, *force) }
	return cmd
}

func (c *cli) removeWorksheets(ctx context.Context, specs []string, force bool) error {
	current, err := c.session()
	if err != nil {
		return err
	}
	var places []*workspace
	var sheets []client.Worksheet
	for _, spec := range specs { // first all of them are found, then they are deleted
		at, w, err := c.worksheet(ctx, spec)
		if err != nil {
			return err
		}
		places, sheets = append(places, at), append(sheets, w)
	}
	var removed []named
	home := false
	for i, w := range sheets {
		if err := places[i].DeleteWorksheet(ctx, w.UUID, force); err != nil {
			for _, gone := range removed {
				c.warn("Worksheet %s was deleted.", gone.UUID)
			}
			return err
		}
		removed = append(removed, named{w.UUID})
		home = home || w.UUID == current.Worksheet && places[i].Address() == current.Address
	}
	if home {
		if err := c.switchTo(session{Address: current.Address}); err != nil {
			return err
		}
	}
	if c.asJSON {
		return c.printJSON(removed)
	}
	if home {
		at, err := c.workspace("")
		if err != nil {
			return err
		}
		w, err := at.FindWorksheet(ctx, "", client.HomeWorksheet)
		if err != nil {
			return err
		}
		return c.print("Switched to worksheet: ", worksheetURL(at.Address(), w))
	}
	return nil
}

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
	dependencies := cmd.Flags().BoolP("copy-dependencies", "d", false, "with bundles: also append what they depend on")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kinds := []string{"text", "bundle", "worksheet"}
		switch {
		case !slices.Contains(kinds, args[0]):
			return commandLineError(cmd, fmt.Errorf("%q is no type of item: want text, bundle or worksheet%s", args[0], didYouMean("", nearest(args[0], kinds))))
		case *dependencies && args[0] != "bundle":
			return usagef("-d/--copy-dependencies flag only applies when adding bundles.")
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

// added prints how many items a worksheet has got, as JSON alone: CodaLab's cl prints nothing.
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
	for i, target := range targets {
		if err := c.copyBundle(ctx, places[i], target.BundleUUID, to, uuid, copyOptions{dependencies: dependencies, add: true}); err != nil {
			return err
		}
	}
	return c.added(uuid, len(specs))
}

func (c *cli) addWorksheets(ctx context.Context, to *workspace, uuid string, specs []string) error {
	var items []client.Item
	for _, spec := range specs {
		from, w, err := c.worksheet(ctx, spec)
		if err != nil {
			return err
		}
		if from.Address() != to.Address() {
			return usagef("You cannot add worksheet links across instances.")
		}
		items = append(items, client.Item{Type: client.ItemWorksheet, Worksheet: &client.Worksheet{UUID: w.UUID}})
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
			return usagef("--index counts from 1, the last one; it cannot be %d", *index)
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
		if b := item.Bundle; item.Type == client.ItemBundle && b != nil && b.State != codalab.StateReady && b.State != codalab.StateFailed {
			if err := c.say("Skipping bundle %s because it has non-final state %s", b.UUID, pythonState(b.State)); err != nil {
				return err
			}
			continue
		}
		if item.Worksheet != nil && from.Address() != to.Address() {
			if err := c.say("Skipping worksheet %s because it is on another server", item.Worksheet.UUID); err != nil {
				return err
			}
			continue
		}
		items = append(items, item)
	}
	// The bundles come first, so that no item shows a bundle that is not there.
	for _, item := range items {
		if item.Type == client.ItemBundle && item.Bundle != nil && from.Address() != to.Address() {
			if err := c.copyBundle(ctx, from, item.Bundle.UUID, to, uuid, copyOptions{}); err != nil {
				return err
			}
		}
	}
	if err := to.AddItems(ctx, uuid, items, replace); err != nil {
		return err
	}
	return c.tell(map[string]any{"worksheet": uuid, "items": len(items)}, "Copied %d worksheet items to %s.", len(items), uuid)
}

// pythonState is a state as Python prints it: that of a private bundle is None.
func pythonState(s codalab.State) string {
	if s == "" {
		return "None"
	}
	return string(s)
}

// say prints a line of what a command does, unless it prints JSON.
func (c *cli) say(format string, args ...any) error {
	if c.asJSON {
		return nil
	}
	return c.print(fmt.Sprintf(format, args...))
}
