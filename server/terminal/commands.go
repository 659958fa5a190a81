package terminal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// command is a command of the page.
type command struct {
	name, arguments, help string
	// least and most bound the number of arguments; most is -1 for any number.
	least, most int
	own         []option
	// metadata is set for a command with an option for each key of a run's metadata.
	metadata bool
	run      func(context.Context, *session, given) error
}

// usage is the command with its arguments, in a line.
func (c command) usage() string { return strings.TrimSpace(c.name + " " + c.arguments) }

// options are all of the command's options.
func (c command) options() []option {
	if !c.metadata {
		return c.own
	}
	return append(slices.Clone(c.own), metadataOptions()...)
}

// commands are those that the page sends by itself (frontend: NewRun.jsx, Worksheet.js, PermissionDialog.js, NavBar.js,
// UserInfo.js), and a few for its terminal.
func commands() []command {
	return []command{
		{name: "help", arguments: "[<command>]", help: "List the commands, or the options of one", most: 1, run: help},
		{name: "run", arguments: "[[<key>]:<bundle>[/<path>]]... '<command>'", help: "Run a command on bundles", least: 1, most: -1, metadata: true, own: []option{
			{name: "after_sort_key", short: "a", kind: isValue},
		}, run: makeRun},
		{name: "kill", arguments: "<bundle>...", help: "End running bundles and keep what they have written", least: 1, most: -1, run: kill},
		{name: "rm", arguments: "<bundle>...", help: "Delete bundles, for ever", least: 1, most: -1, own: []option{
			{name: "force"}, {name: "recursive", short: "r"}, {name: "data-only", short: "d"}, {name: "dry-run", short: "i"},
		}, run: remove},
		{name: "search", arguments: "<keyword>...", help: "Find bundles", least: 1, most: -1, run: find},
		{name: "ls", help: "List the bundles of the worksheet", run: list},
		{name: "info", arguments: "<bundle>...", help: "Open the pages of bundles", least: 1, most: -1, run: info},
		{name: "chown", arguments: "<user> <bundle>...", help: "Offer bundles to another user", least: 2, most: -1, run: offer},
		{name: "perm", arguments: "<bundle>... <group> none|read|all", help: "Share bundles with a group", least: 3, most: -1, run: permit},
		{name: "wperm", arguments: "<worksheet> <group> none|read|all", help: "Share a worksheet with a group", least: 3, most: 3, run: permitWorksheet},
		{name: "gls", help: "List your groups", run: groups},
		{name: "new", arguments: "<name>", help: "Make a worksheet, and open it", least: 1, most: 1, run: makeWorksheet},
		{name: "wls", arguments: "[<keyword>...]", help: "Find worksheets", most: -1, run: findWorksheets},
		{name: "work", arguments: "<worksheet>", help: "Open a worksheet", least: 1, most: 1, run: openWorksheet},
		{name: "wedit", help: "Edit the worksheet", run: editWorksheet},
		{name: "ufarewell", arguments: "<user>", help: "Delete your account, if you own nothing", least: 1, most: 1, run: deleteUser},
	}
}

// names are the commands' names.
func names() []string {
	var list []string
	for _, c := range commands() {
		list = append(list, c.name)
	}
	return list
}

func help(_ context.Context, s *session, g given) error {
	if len(g.arguments) == 0 {
		for _, c := range commands() {
			s.print(fmt.Sprintf("%-10s %s", c.name, c.help))
		}
		s.print("", "Name a bundle by its uuid or the beginning of it, by its name, or by its position", "from the end of the worksheet, such as ^ or ^2. All other commands need cl on your own machine.")
		return nil
	}
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == g.arguments[0] })
	if i < 0 {
		return unknown(g.arguments[0])
	}
	s.print(all[i].usage(), all[i].help)
	for _, o := range all[i].options() {
		line := "  --" + o.name
		if o.short != "" {
			line += ", -" + o.short
		}
		s.print(line)
	}
	return nil
}

// bundles returns the uuids of the bundles that specs name.
func (s *session) bundles(ctx context.Context, specs []string) ([]string, error) {
	uuids := make([]string, len(specs))
	here, at := []string{}, []int{}
	for i, spec := range specs {
		worksheet, bundle, elsewhere := strings.Cut(spec, "//")
		if !elsewhere {
			here, at = append(here, spec), append(at, i)
			continue
		}
		sheet, err := s.FindWorksheet(ctx, s.worksheet, worksheet)
		if err != nil {
			return nil, err
		}
		found, err := s.Bundles(ctx, sheet.UUID, []string{bundle})
		if err != nil {
			return nil, err
		}
		uuids[i] = found[0].UUID
	}
	if len(here) == 0 {
		return uuids, nil
	}
	found, err := s.Bundles(ctx, s.worksheet, here)
	if err != nil {
		return nil, err
	}
	for i, b := range found {
		uuids[at[i]] = b.UUID
	}
	return uuids, nil
}

// kill is bundle_cli.py: do_kill_command.
func kill(ctx context.Context, s *session, g given) error {
	uuids, err := s.bundles(ctx, g.arguments)
	if err != nil {
		return err
	}
	if err := s.KillBundles(ctx, uuids...); err != nil {
		return err
	}
	s.print(uuids...)
	return nil
}

// remove is bundle_cli.py: do_rm_command.
func remove(ctx context.Context, s *session, g given) error {
	uuids, err := s.bundles(ctx, g.arguments)
	if err != nil {
		return err
	}
	deleted, err := s.DeleteBundles(ctx, uuids, client.DeleteOptions{
		Force: g.has("force"), Recursive: g.has("recursive"), DataOnly: g.has("data-only"), DryRun: g.has("dry-run"),
	})
	if err != nil {
		return err
	}
	if g.has("dry-run") {
		s.print("These bundles would be deleted:")
	}
	s.print(deleted...)
	return nil
}

// find is bundle_cli.py: do_search_command.
func find(ctx context.Context, s *session, g given) error {
	found, number, err := s.ListBundles(ctx, s.worksheet, g.arguments, "name")
	if err != nil {
		return err
	}
	if number != nil {
		var text any
		if err := json.Unmarshal(number, &text); err != nil {
			return fmt.Errorf("decode number: %w", err)
		}
		s.print(fmt.Sprint(text))
		return nil
	}
	s.printBundles(found)
	return nil
}

// list is bundle_cli.py: do_ls_command.
func list(ctx context.Context, s *session, _ given) error {
	uuid, err := s.onWorksheet()
	if err != nil {
		return err
	}
	sheet, err := s.WorksheetBundles(ctx, uuid, "name")
	if err != nil {
		return err
	}
	s.printBundles(sheet.Bundles)
	return nil
}

// printBundles prints bundles, whose short uuids the page makes links of (bundle_cli.py: create_reference_map).
func (s *session) printBundles(found []client.BundleInfo) {
	if len(found) == 0 {
		s.print("No bundles found.")
		return
	}
	refs := map[string]any{}
	var rows [][]string
	for _, b := range found {
		short := shortUUID(b.UUID)
		refs[short] = map[string]string{"type": "bundle", "uuid": b.UUID, "name": b.Metadata.String("name")}
		rows = append(rows, []string{short, b.Metadata.String("name"), b.Type, string(b.State), userName(b.Owner)})
	}
	s.table([]string{"uuid", "name", "type", "state", "owner"}, rows)
	s.result = map[string]any{"refs": refs}
}

// table prints rows below the names of their columns and a line. The page reads the groups of gls from the third line on
// (PermissionDialog.js: parseGlsOutput; bundle_cli.py: print_table).
func (s *session) table(columns []string, rows [][]string) {
	widths := make([]int, len(columns))
	for _, row := range append([][]string{columns}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	line := func(row []string) string {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell + strings.Repeat(" ", widths[i]-len([]rune(cell))+2))
		}
		return strings.TrimRight(b.String(), " ")
	}
	total := 2 * (len(columns) - 1)
	for _, width := range widths {
		total += width
	}
	s.print(line(columns), strings.Repeat("-", total))
	for _, row := range rows {
		s.print(line(row))
	}
}

// permission is codalab/objects/permission.py: parse_permission.
func permission(spec string) (int, error) {
	if p, ok := codalab.ParsePermission(spec); ok {
		return p, nil
	}
	return 0, wrong("Invalid permission '%s': want none, read or all.", spec)
}

// permit is bundle_cli.py: do_perm_command.
func permit(ctx context.Context, s *session, g given) error {
	last := len(g.arguments) - 2
	p, err := permission(g.arguments[last+1])
	if err != nil {
		return err
	}
	uuids, err := s.bundles(ctx, g.arguments[:last])
	if err != nil {
		return err
	}
	group, err := s.Group(ctx, g.arguments[last])
	if err != nil {
		return err
	}
	if err := s.SetBundlePermissions(ctx, uuids, group.ID, p); err != nil {
		return err
	}
	s.print(fmt.Sprintf("Group %s(%s) has %s permission on %d bundles.", group.Name, group.ID, codalab.PermissionSpec(p), len(uuids)))
	return nil
}

// permitWorksheet is bundle_cli.py: do_wperm_command.
func permitWorksheet(ctx context.Context, s *session, g given) error {
	p, err := permission(g.arguments[2])
	if err != nil {
		return err
	}
	sheet, err := s.FindWorksheet(ctx, s.worksheet, g.arguments[0])
	if err != nil {
		return err
	}
	group, err := s.Group(ctx, g.arguments[1])
	if err != nil {
		return err
	}
	if err := s.SetWorksheetPermission(ctx, sheet.UUID, group.ID, p); err != nil {
		return err
	}
	s.print(fmt.Sprintf("Group %s(%s) has %s permission on worksheet %s(%s).", group.Name, group.ID, codalab.PermissionSpec(p), sheet.Name, sheet.UUID))
	return nil
}

// groups is bundle_cli.py: do_gls_command.
func groups(ctx context.Context, s *session, _ given) error {
	found, err := s.GroupInfos(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		s.print("No groups found.")
		return nil
	}
	var rows [][]string
	for _, group := range found {
		owner, role := "", "member"
		if group.Owner != nil {
			owner = group.Owner.UserName + "(" + group.Owner.ID + ")"
			if group.Owner.ID == s.user.ID {
				role = "owner"
			}
		}
		if slices.ContainsFunc(group.Admins, func(u codalab.User) bool { return u.ID == s.user.ID }) {
			role = "admin"
		}
		rows = append(rows, []string{group.Name, group.ID, owner, role})
	}
	s.table([]string{"name", "uuid", "owner", "role"}, rows)
	return nil
}

// makeWorksheet is bundle_cli.py: do_new_command.
func makeWorksheet(ctx context.Context, s *session, g given) error {
	sheet, err := s.CreateWorksheet(ctx, g.arguments[0])
	if err != nil {
		return err
	}
	s.print(sheet.UUID)
	s.do("openWorksheet", sheet.UUID)
	return nil
}

// openWorksheet is bundle_cli.py: do_work_command.
func openWorksheet(ctx context.Context, s *session, g given) error {
	sheet, err := s.FindWorksheet(ctx, s.worksheet, g.arguments[0])
	if err != nil {
		return err
	}
	s.do("openWorksheet", sheet.UUID)
	return nil
}

// editWorksheet is bundle_cli.py: do_wedit_command.
func editWorksheet(_ context.Context, s *session, _ given) error {
	s.do("setEditMode", true)
	return nil
}

// deleteUser is bundle_cli.py: do_ufarewell_command.
func deleteUser(ctx context.Context, s *session, g given) error {
	user, err := s.UserByID(ctx, g.arguments[0])
	if err != nil {
		return err
	}
	if user.ID != s.user.ID {
		return wrong("The web page deletes your own account alone.")
	}
	if err := s.DeleteUser(ctx, user.ID); err != nil {
		return err
	}
	s.print("Deleted user " + user.UserName + "(" + user.ID + ").")
	return nil
}
