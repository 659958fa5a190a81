package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// accountFields are the fields of a user that cl shows (bundle_cli.py: print_user_info).
func accountFields() []string {
	return []string{
		"id", "user_name", "is_verified", "has_access", "first_name", "last_name", "affiliation", "url",
		"date_joined", "last_login", "email", "time", "disk", "entries", "parallel_run_quota",
	}
}

// moreAccountFields are the fields that only -f shows.
func moreAccountFields() []string {
	return []string{
		"is_root_user", "time_quota", "time_used", "disk_quota", "disk_used",
		"entries_quota", "entries_used", "disk_used_by_runs", "time_used_by_runs", "notifications", "avatar_id", "protected_mode",
	}
}

// userFields are a user's id, and all attributes that the server shows, by their names on the wire.
type userFields map[string]any

func userFieldsOf(u codalab.User) (userFields, error) {
	fields := userFields{"id": u.ID}
	data, err := json.Marshal(u)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		return nil, fmt.Errorf("list the fields of user %s: %w", u.ID, err)
	}
	return fields, nil
}

// accountText returns a field of a user, and false if the server does not show it.
func accountText(a userFields, field string) (string, bool) {
	number := codalab.Metadata(a)
	ratio := func(used, quota, running string, text func(float64) string) (string, bool) {
		if !number.Has(quota) { // our server leaves out a use of 0
			return "", false
		}
		u, q := number.Float(used), number.Float(quota)
		share := 100.0
		if q != 0 {
			share = 100 * u / q
		}
		sum := fmt.Sprintf("%s / %s (%.1f%%)", text(u), text(q), share)
		if part := number.Float(running); part > 0 {
			sum += ", " + text(part) + " of it by running runs"
		}
		return sum, true
	}
	switch field {
	case "time":
		return ratio("time_used", "time_quota", "time_used_by_runs", func(s float64) string {
			return codalab.FormatDuration(time.Duration(min(s, 9e9) * float64(time.Second)))
		})
	case "disk":
		return ratio("disk_used", "disk_quota", "disk_used_by_runs", func(n float64) string { return codalab.FormatSize(int64(n)) })
	case "entries": // files, directories, links and bundles
		return ratio("entries_used", "entries_quota", "", func(n float64) string { return fmt.Sprint(int64(n)) })
	}
	v, ok := a[field]
	return codalab.PythonStr(v), ok
}

// isRatio reports whether a field is a part of a quota.
func isRatio(field string) bool { return field == "time" || field == "disk" || field == "entries" }

// readAccountFields reads a list of fields, and refuses unknown ones.
func readAccountFields(list string) ([]string, error) {
	fields := strings.Split(list, ",")
	known := append(accountFields(), moreAccountFields()...)
	for i, f := range fields {
		f = strings.TrimSpace(f)
		fields[i] = f
		if !slices.Contains(known, f) {
			return nil, refusef("there is no field %q of users%s", f, argparse.DidYouMean("", argparse.Nearest(f, known)))
		}
	}
	return fields, nil
}

// uinfoCommand is bundle_cli.py: do_uinfo_command.
func (c *cli) uinfoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "uinfo [<user>]", Short: "Show a user, with your own quotas and use",
		Long: "Show a user, by name or id; without one yourself, with your quotas and use.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	field := cmd.Flags().StringP("field", "f", "", "print these comma-separated fields, a line for each")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		fields := []string{}
		if *field != "" {
			var err error
			if fields, err = readAccountFields(*field); err != nil {
				return err
			}
		}
		at, err := c.workspace("")
		if err != nil {
			return err
		}
		var u codalab.User
		if name := strings.Join(args, ""); name != "" {
			u, err = at.UserByID(cmd.Context(), name)
		} else {
			u, err = at.User(cmd.Context())
		}
		if err != nil {
			return err
		}
		return c.printAccount(u, fields)
	}
	return cmd
}

// viewAccount is a user in JSON: some fields, or without them all that the server shows.
func viewAccount(a userFields, fields []string) userFields {
	if len(fields) == 0 {
		return a
	}
	some := userFields{}
	for _, f := range fields {
		if text, ok := accountText(a, f); ok && isRatio(f) {
			some[f] = text
		} else if ok {
			some[f] = a[f]
		}
	}
	return some
}

func (c *cli) printAccount(u codalab.User, fields []string) error {
	a, err := userFieldsOf(u)
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(viewAccount(a, fields))
	}
	if len(fields) == 0 {
		for _, f := range accountFields() {
			if text, ok := accountText(a, f); ok {
				if err := c.print(fmt.Sprintf("%-15s: %s", f, text)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, f := range fields {
		if text, ok := accountText(a, f); ok {
			if err := c.print(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// ulsCommand is bundle_cli.py: do_uls_command.
func (c *cli) ulsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "uls [<keyword>...]", Short: "Search for users",
		Long: `List the users that match all keywords.

  uls ann                    name or id has this word
  uls affiliation=X          with this value of a field; % stands for any letters
  uls .joined_before=<date> .joined_after=<date>
                             joined by a date, such as 2042-03-14
  uls .active_before=<date> .active_after=<date>
                             for root: last signed in by a date
  uls .disk_used_less_than=70% .disk_used_more_than=70%
  uls .time_used_less_than=70% .time_used_more_than=70%
                             for root: by the share of the quota
  uls .limit=50 .offset=50   up to 50 users, from the 51st on; default 10
  uls user_name=.sort        sorted by a field; .sort- from the end
  uls .count                 only their number`,
		ValidArgsFunction: completeWords(".limit=", ".offset=", ".count", ".joined_before=", ".joined_after=", ".active_before=", ".active_after=", "user_name=", "first_name=", "last_name=", "affiliation="),
	}
	field := cmd.Flags().StringP("field", "f", "", "print these comma-separated fields")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var fields []string
		if *field != "" {
			var err error
			if fields, err = readAccountFields(*field); err != nil {
				return err
			}
		}
		at, err := c.workspace("")
		if err != nil {
			return err
		}
		found, number, err := at.SearchUsers(cmd.Context(), args...)
		if err != nil || number != nil {
			return c.orNumber(err, number)
		}
		accounts := make([]userFields, len(found))
		for i, u := range found {
			if accounts[i], err = userFieldsOf(u); err != nil {
				return err
			}
		}
		return c.listAccounts(accounts, fields, args)
	}
	return cmd
}

func (c *cli) listAccounts(found []userFields, fields, keywords []string) error {
	switch {
	case c.asJSON:
		views := []userFields{}
		for _, a := range found {
			views = append(views, viewAccount(a, fields))
		}
		return c.printJSON(views)
	case len(found) == 0:
		c.warn("No results found")
		return nil
	}
	c.noteLimit(len(found), keywords)
	if len(fields) == 0 {
		fields = []string{"user_name", "first_name", "last_name", "affiliation", "date_joined"}
		if codalab.Metadata(found[0]).Has("last_login") { // the server shows it to root
			fields = append(fields, "last_login", "time", "disk", "entries", "parallel_run_quota")
		}
	}
	var columns []column
	for _, f := range fields {
		columns = append(columns, column{name: f})
	}
	var rows [][]string
	for _, a := range found {
		var row []string
		for _, f := range fields {
			text, ok := accountText(a, f)
			if !ok || a[f] == nil && !isRatio(f) {
				text = ""
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return printTable(c.Stdout, columns, rows)
}

// ueditCommand is bundle_cli.py: do_uedit_command.
func (c *cli) ueditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "uedit [<user>]", Short: "Change your account, or as root another user's",
		Long: "Change your own account, or as root that of another user. Only root changes quotas.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := accountFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		edit, err := read()
		if err != nil {
			return err
		}
		at, err := c.workspace("")
		if err != nil {
			return err
		}
		id := "" // the user's own account
		if len(args) > 0 {
			user, err := at.UserByID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			id = user.ID
		}
		u, err := at.UpdateUser(cmd.Context(), id, edit)
		if err != nil {
			return err
		}
		return c.printAccount(u, nil)
	}
	return cmd
}

// accountFlags adds flags for the changeable fields of an account, and returns a function that reads
// them.
func accountFlags(cmd *cobra.Command) func() (codalab.UserEdit, error) {
	flags := cmd.Flags()
	text := func(flag, help string) func() *string {
		value := flags.String(flag, "", help)
		return func() *string {
			if !flags.Changed(flag) {
				return nil
			}
			return value
		}
	}
	firstName, lastName := text("first-name", "first name"), text("last-name", "last name")
	affiliation, url := text("affiliation", "affiliation"), text("url", "address of the web page")
	timeQuota := &spelled{spell: spellDuration, kind: "time"}
	flags.VarP(timeQuota, "time-quota", "t", "time of runs in all, such as 3h or 3d")
	diskQuota := &spelled{spell: spellSize, kind: "size"}
	flags.VarP(diskQuota, "disk-quota", "d", "size of bundles in all, such as 3g")
	entriesQuota := flags.Int64("entries-quota", 0, "files, directories, links and bundles in all")
	runs := flags.Int64P("parallel-run-quota", "p", 0, "runs at a time on workers of the site")
	grant := flags.Bool("grant-access", false, "let the user in, on a server in protected mode")
	remove := flags.Bool("remove-access", false, "keep the user out, on a server in protected mode")
	return func() (codalab.UserEdit, error) {
		edit := codalab.UserEdit{FirstName: firstName(), LastName: lastName(), Affiliation: affiliation(), URL: url()}
		// The flags have checked their values.
		if d, err := codalab.ParseDuration(timeQuota.text); err == nil {
			edit.TimeQuota = new(d.Seconds())
		}
		if n, err := codalab.ParseSize(diskQuota.text); err == nil {
			edit.DiskQuota = new(float64(n))
		}
		if flags.Changed("entries-quota") {
			edit.EntriesQuota = new(float64(*entriesQuota))
		}
		if flags.Changed("parallel-run-quota") {
			edit.ParallelRunQuota = new(float64(*runs))
		}
		if *grant || *remove {
			edit.HasAccess = grant
		}
		switch {
		case *grant && *remove:
			return edit, refusef("Can't both grant and remove access for a user.")
		case edit == codalab.UserEdit{}:
			return edit, refusef("No fields to update.")
		}
		return edit, nil
	}
}

// ufarewellCommand is bundle_cli.py: do_ufarewell_command.
func (c *cli) ufarewellCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ufarewell <user>", Short: "Delete a user who owns nothing",
		Long: "Delete a user: yourself, or as root anybody. The user's bundles, worksheets and groups\nmust be gone before.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := c.workspace("")
			if err != nil {
				return err
			}
			user, err := at.UserByID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := at.DeleteUser(cmd.Context(), user.ID); err != nil {
				return err
			}
			return c.printResult(viewUser(&user), "Deleted user %s(%s).", user.UserName, user.ID)
		},
	}
}
