package main

import (
	"context"

	"github.com/spf13/cobra"

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
		return c.print("Switched to worksheet: ", worksheetURL(at.Address(), w.WorksheetName))
	}
	return nil
}
