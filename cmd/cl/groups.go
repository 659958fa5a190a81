package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const groupHelp = "Name a group by its name, its uuid, or the beginning of that; public is everybody."

// groupView is a group in JSON.
type groupView struct {
	ID    string    `json:"id"`
	Name  string    `json:"name"`
	Owner *userView `json:"owner"`
	// Role is the asking user's role in the group. Only lists have it.
	Role    string      `json:"role,omitempty"`
	Admins  []*userView `json:"admins,omitempty"`
	Members []*userView `json:"members,omitempty"`
}

func viewGroup(g client.Group) groupView {
	v := groupView{ID: g.ID, Name: g.Name, Owner: viewUser(g.Owner)}
	for _, u := range g.Admins {
		v.Admins = append(v.Admins, viewUser(&u))
	}
	for _, u := range g.Members {
		v.Members = append(v.Members, viewUser(&u))
	}
	return v
}

// glsCommand is bundle_cli.py: do_gls_command.
func (c *cli) glsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "gls", Short: "List your groups", Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		at, err := c.workspace(*worksheet)
		if err != nil {
			return err
		}
		user, err := at.User(cmd.Context())
		if err != nil {
			return err
		}
		groups, err := at.GroupInfos(cmd.Context())
		if err != nil {
			return err
		}
		return c.listGroups(user, groups)
	}
	return cmd
}

func (c *cli) listGroups(user codalab.User, groups []client.Group) error {
	views := []groupView{}
	var rows [][]string
	for _, g := range groups {
		v := groupView{ID: g.ID, Name: g.Name, Owner: viewUser(g.Owner), Role: roleIn(g, user.ID)}
		views = append(views, v)
		owner := ""
		if g.Owner != nil {
			owner = userText(g.Owner)
		}
		rows = append(rows, []string{g.Name, g.ID, owner, v.Role})
	}
	switch {
	case c.asJSON:
		return c.printJSON(views)
	case len(rows) == 0:
		return c.print("No groups found.")
	}
	return printTable(c.Stdout, []column{{name: "name"}, {name: "uuid"}, {name: "owner"}, {name: "role"}}, rows)
}

func roleIn(g client.Group, user string) string {
	for _, admin := range g.Admins {
		if admin.ID == user {
			return "admin"
		}
	}
	if g.Owner != nil && g.Owner.ID == user {
		return "owner"
	}
	return "member"
}

// ginfoCommand is bundle_cli.py: do_ginfo_command.
func (c *cli) ginfoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ginfo <group>", Short: "Show the members of a group", Long: "Show the members of a group.\n\n" + groupHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, g, err := c.group(cmd.Context(), args[0])
			if err != nil || c.asJSON {
				return c.orJSON(err, viewGroup(g))
			}
			rows := [][]string{}
			if g.Owner != nil {
				rows = append(rows, []string{userText(g.Owner), "owner"})
			}
			rows = append(rows, memberRows(g.Admins, "admin")...)
			rows = append(rows, memberRows(g.Members, "member")...)
			if err := c.print("Members of group ", groupText(g), ":"); err != nil {
				return err
			}
			return printTable(c.Stdout, []column{{name: "user"}, {name: "role"}}, rows)
		},
	}
}

func memberRows(users []codalab.User, role string) [][]string {
	var rows [][]string
	for _, u := range users {
		name := u.UserName
		if name == "" {
			name = "[deleted user]"
		}
		rows = append(rows, []string{name + "(" + u.ID + ")", role})
	}
	return rows
}

// groupText is bundle_cli.py: simple_group_str.
func groupText(g client.Group) string { return g.Name + "(" + g.ID + ")" }

// group returns the group that a spec names on the current server.
func (c *cli) group(ctx context.Context, spec string) (*workspace, client.Group, error) {
	at, err := c.workspace("")
	if err != nil {
		return nil, client.Group{}, err
	}
	g, err := at.Group(ctx, spec)
	return at, g, err
}

// gnewCommand is bundle_cli.py: do_gnew_command.
func (c *cli) gnewCommand() *cobra.Command {
	return &cobra.Command{
		Use: "gnew <name>", Short: "Create a group, of which you are the owner", Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName(args[0]); err != nil {
				return err
			}
			at, err := c.workspace("")
			if err != nil {
				return err
			}
			g, err := at.CreateGroup(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.printResult(viewGroup(g), "Created new group %s.", groupText(g))
		},
	}
}

// grmCommand is bundle_cli.py: do_grm_command.
func (c *cli) grmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "grm <group>", Short: "Delete a group", Long: "Delete a group. What was shared with it is not shared any more.\n\n" + groupHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, g, err := c.group(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := at.DeleteGroup(cmd.Context(), g.ID); err != nil {
				return err
			}
			return c.printResult(viewGroup(g), "Deleted group %s.", groupText(g))
		},
	}
}

// membership is a user's place in a group, in JSON.
type membership struct {
	User  userView  `json:"user"`
	Group groupView `json:"group"`
	// Role is empty after the user was removed.
	Role string `json:"role,omitempty"`
}

// uaddCommand is bundle_cli.py: do_uadd_command.
func (c *cli) uaddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "uadd <user> <group>", Short: "Add a user to a group",
		Long: "Add a user to a group, which you own or of which you are an admin.\n\n" + groupHelp,
		Args: cobra.ExactArgs(2), ValidArgsFunction: completeInTurn(cobra.NoFileCompletions, c.completeGroups),
	}
	admin := cmd.Flags().BoolP("admin", "a", false, "let the user change the group, too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, user, group, err := c.userAndGroup(cmd.Context(), args)
		if err != nil {
			return err
		}
		if err := at.AddToGroup(cmd.Context(), group.ID, user.ID, *admin); err != nil {
			return err
		}
		role := "member"
		if *admin {
			role = "admin"
		}
		return c.printResult(membership{*viewUser(&user), groupView{ID: group.ID, Name: group.Name, Owner: viewUser(group.Owner)}, role},
			"%s in group %s as %s", user.UserName, group.Name, role)
	}
	return cmd
}

// urmCommand is bundle_cli.py: do_urm_command.
func (c *cli) urmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "urm <user> <group>", Short: "Remove a user from a group", Long: "Remove a user from a group.\n\n" + groupHelp,
		Args: cobra.ExactArgs(2), ValidArgsFunction: completeInTurn(cobra.NoFileCompletions, c.completeGroups),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, user, group, err := c.userAndGroup(cmd.Context(), args)
			if err != nil {
				return err
			}
			is := false
			for _, u := range append(group.Members, group.Admins...) {
				is = is || u.ID == user.ID
			}
			if !is {
				return refusef("%s is not a member of group %s.", user.UserName, group.Name)
			}
			if err := at.RemoveFromGroup(cmd.Context(), group.ID, user.ID); err != nil {
				return err
			}
			return c.printResult(membership{User: *viewUser(&user), Group: groupView{ID: group.ID, Name: group.Name, Owner: viewUser(group.Owner)}},
				"Removed %s from group %s.", user.UserName, group.Name)
		},
	}
}

func (c *cli) userAndGroup(ctx context.Context, args []string) (*workspace, codalab.User, client.Group, error) {
	at, err := c.workspace("")
	if err != nil {
		return nil, codalab.User{}, client.Group{}, err
	}
	user, err := at.UserByID(ctx, args[0])
	if err != nil {
		return nil, user, client.Group{}, err
	}
	group, err := at.Group(ctx, args[1])
	return at, user, group, err
}

const permHelp = `

The permissions are none, read and all, or n, r and a. A group with all may
also change, share and delete.

` + groupHelp

// grant is a permission that was set, in JSON.
type grant struct {
	Group      groupView `json:"group"`
	Permission string    `json:"permission"`
	Bundles    []named   `json:"bundles,omitempty"`
	Worksheet  *named    `json:"worksheet,omitempty"`
}

// permCommand is bundle_cli.py: do_perm_command.
func (c *cli) permCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "perm <bundle>... <group> <permission>", Short: "Share bundles with a group",
		Long: "Set what a group may do with bundles." + permHelp,
		Args: cobra.MinimumNArgs(3), ValidArgsFunction: completeInTurn(c.completeBundles, completeAny(c.completeBundles, c.completeGroups),
			completeAny(c.completeBundles, c.completeGroups, completeWords("none", "read", "all"))),
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		last := len(args) - 2
		permission, err := parsePermission(args[last+1])
		if err != nil {
			return err
		}
		at, uuids, err := c.bundlesAndSweeps(cmd.Context(), *worksheet, args[:last], anyRun)
		if err != nil {
			return err
		}
		g, err := at.Group(cmd.Context(), args[last])
		if err != nil {
			return err
		}
		if err := at.SetBundlePermissions(cmd.Context(), uuids, g.ID, permission); err != nil {
			return err
		}
		done := grant{Group: viewGroup(g), Permission: codalab.PermissionSpec(permission)}
		for _, uuid := range uuids {
			done.Bundles = append(done.Bundles, named{uuid})
		}
		if err := c.printResult(done, "Group %s has %s permission on %d bundles.", groupText(g), done.Permission, len(uuids)); err != nil || c.asJSON {
			return err
		}
		return c.printBundleAccess(cmd.Context(), at, uuids)
	}
	return cmd
}

// wpermCommand is bundle_cli.py: do_wperm_command.
func (c *cli) wpermCommand() *cobra.Command {
	return &cobra.Command{
		Use: "wperm <worksheet> <group> <permission>", Short: "Share a worksheet with a group",
		Long: "Set what a group may do with a worksheet. New bundles on it are shared in the same\n" +
			"way; share those that are there already with cl perm." + permHelp,
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: completeInTurn(c.completeWorksheets, c.completeGroups, completeWords("none", "read", "all")),
		RunE: func(cmd *cobra.Command, args []string) error {
			permission, err := parsePermission(args[2])
			if err != nil {
				return err
			}
			at, w, err := c.worksheet(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			g, err := at.Group(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			if err := at.SetWorksheetPermission(cmd.Context(), w.UUID, g.ID, permission); err != nil {
				return err
			}
			err = c.printResult(grant{Group: viewGroup(g), Permission: codalab.PermissionSpec(permission), Worksheet: &named{w.UUID}},
				"Group %s has %s permission on worksheet %s.", groupText(g), codalab.PermissionSpec(permission), worksheetURL(at.Address(), w.WorksheetName))
			if err != nil || c.asJSON {
				return err
			}
			return c.printWorksheetAccess(cmd.Context(), at, w.UUID)
		},
	}
}

// parsePermission is codalab/objects/permission.py: parse_permission.
func parsePermission(spec string) (int, error) {
	if permission, ok := codalab.ParsePermission(spec); ok {
		return permission, nil
	}
	return 0, refusef("Invalid permission flag specified (%s): want none, read or all", spec)
}

const chownHelp = `Offer bundles to another user, who becomes their owner by accepting them.

Until then they are yours and count in your quota. The other user accepts by
cl offers accept, or by the same command: cl chown ben 0x12ab... of ben. Name
yourself to take an offer back, and the owner to decline one. Root's cl chown
changes the owner at once, and so does CodaLab's own server.

Only bundles that have ended can be offered. The new owner sees their names and
sizes, and may read them if a group of the new owner may. Groups that can read
them can do so afterwards, too; you can only as a member of such a group.`

// chownCommand is bundle_cli.py: do_chown_command.
func (c *cli) chownCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "chown <user> <bundle>...", Short: "Offer bundles to another user", Long: chownHelp, Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: completeInTurn(cobra.NoFileCompletions, c.completeBundles),
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, uuids, err := c.bundlesAndSweeps(cmd.Context(), *worksheet, args[1:], anyRun)
		if err != nil {
			return err
		}
		owner, err := at.UserByID(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		changes := make([]client.BundleChange, 0, len(uuids))
		for _, uuid := range uuids {
			changes = append(changes, client.BundleChange{UUID: uuid, Owner: owner.ID})
		}
		bundles, err := at.UpdateBundles(cmd.Context(), changes...)
		if err != nil {
			return err
		}
		if err := c.printUUIDs(uuids); err != nil || c.tellOffered(bundles, owner) {
			return err
		}
		return c.tellOwned(cmd.Context(), at, bundles, owner)
	}
	return cmd
}

// checkName refuses a name that no bundle, worksheet or group can have, before anything is sent
// (codalab/lib/spec_util.py: NAME_REGEX).
func checkName(name string) error {
	if codalab.IsName(name) {
		return nil
	}
	near := ""
	if name != "" {
		near = defaultName("", name)
	}
	return refusef("Invalid name %q: it must begin with a letter or an underscore and may have letters, digits, "+
		"underscores, dots and dashes%s", name, argparse.DidYouMean("", near))
}
