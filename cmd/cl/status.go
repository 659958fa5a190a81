package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// statusView is what cl status shows, in JSON.
type statusView struct {
	Home          string        `json:"codalab_home"`
	Session       string        `json:"session"`
	ClientVersion string        `json:"client_version"`
	ServerVersion string        `json:"server_version"`
	Address       string        `json:"address"`
	UserName      string        `json:"username,omitempty"`
	Worksheet     worksheetView `json:"current_worksheet"`
	User          *userView     `json:"user"`
}

// statusCommand is bundle_cli.py: do_status_command.
func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Aliases: []string{"st"}, Short: "Show the server, the worksheet and the user that cl uses",
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.showStatus(cmd.Context()) },
	}
}

func (c *cli) showStatus(ctx context.Context) error {
	at, w, err := c.worksheet(ctx, "")
	if err != nil {
		return err
	}
	user, err := at.User(ctx)
	if err != nil {
		return err
	}
	version, err := at.ServerVersion(ctx)
	if err != nil {
		return err
	}
	home, err := c.home()
	if err != nil {
		return err
	}
	state, err := c.load()
	if err != nil {
		return err
	}
	v := statusView{
		Home: home, Session: c.sessionName(), ClientVersion: program.Version(), ServerVersion: version, Address: at.Address(),
		UserName: state.Users[at.Address()], Worksheet: worksheetView{w.UUID, w.Name}, User: viewUser(&user),
	}
	if c.asJSON {
		return c.printJSON(v)
	}
	lines := []string{
		"codalab_home: " + v.Home, "session: " + v.Session, "client_version: " + v.ClientVersion,
		"server_version: " + v.ServerVersion, "address: " + v.Address,
	}
	if v.UserName != "" {
		lines = append(lines, "username: "+v.UserName)
	}
	return c.printLines(append(lines, "current_worksheet: "+worksheetURL(at.Address(), w), "user: "+userText(&user)))
}

// logoutCommand is bundle_cli.py: do_logout_command.
func (c *cli) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout [<address>|<alias>]", Short: "Forget the login at a server",
		Long: "Forget the token and the user name for a server, by default the current one.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			current, err := c.session()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				if current.Address, err = c.address(strings.TrimSuffix(args[0], "::")); err != nil {
					return err
				}
				if !strings.Contains(current.Address, "://") {
					return usagef("%q is no address, and no alias; cl alias lists those", args[0])
				}
			}
			return c.forget(current.Address)
		},
	}
}

// forget removes the token and the user name for a server.
func (c *cli) forget(address string) error {
	state, err := c.load()
	if err != nil {
		return err
	}
	for _, user := range []string{state.Users[address], c.Getenv("CODALAB_USERNAME")} {
		l := &login{cli: c, address: address, user: user}
		if path := l.path(); path != "" {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("logout: %w", err)
			}
		}
	}
	if err := c.update(func(state *stateFile) { delete(state.Users, address) }); err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(map[string]string{"address": address})
	}
	return nil
}

// configFile is config.json in $CODALAB_HOME, which CodaLab's own cl has, too. cl keeps what it does not
// know (codalab_manager.py: config).
type configFile struct {
	path   string
	values map[string]any
}

func (c *cli) loadConfig() (*configFile, error) {
	home, err := c.home()
	if err != nil {
		return nil, err
	}
	f := &configFile{path: filepath.Join(home, "config.json"), values: map[string]any{}}
	data, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if err := json.Unmarshal(data, &f.values); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w; correct or remove the file", f.path, err)
	}
	if f.values == nil { // the file holds null
		f.values = map[string]any{}
	}
	return f, nil
}

func (f *configFile) save() error {
	data, err := json.MarshalIndent(f.values, "", "    ")
	if err != nil {
		return fmt.Errorf("save configuration: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("save configuration: %w", err)
	}
	return atomicfile.Write(f.path, append(data, '\n'), 0o600)
}

// section returns the object under a path of keys; it makes it if create is set, and else returns nil for
// one that is not there.
func (f *configFile) section(path []string, create bool) (map[string]any, error) {
	at := f.values
	for _, key := range path {
		next, ok := at[key].(map[string]any)
		switch {
		case !ok && at[key] != nil:
			return nil, usagef("%s is a value, which has no keys", key)
		case !ok && !create:
			return nil, nil
		case !ok:
			next = map[string]any{}
			at[key] = next
		}
		at = next
	}
	return at, nil
}

// text returns the text under a path of keys; empty if there is none.
func (f *configFile) text(path ...string) string {
	at, err := f.section(path[:len(path)-1], false)
	if err != nil {
		return ""
	}
	text, _ := at[path[len(path)-1]].(string)
	return text
}

// address returns the address that an alias stands for, and any other word itself.
func (c *cli) address(word string) (string, error) {
	config, err := c.loadConfig()
	if err != nil {
		return "", err
	}
	if address := config.text("aliases", word); address != "" {
		word = address
	}
	return strings.TrimRight(word, "/"), nil
}

// aliasCommand is bundle_cli.py: do_alias_command.
func (c *cli) aliasCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "alias [<name> [<address>]]", Short: "Name servers",
		Long: `Name the address of a server, for use before ::, as in cl work lab::

  alias                   list the names
  alias <name>            show the address of a name
  alias <name> <address>  set it; -r <name> removes it`,
		Args: cobra.MaximumNArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
	}
	remove := cmd.Flags().BoolP("remove", "r", false, "remove the name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		config, err := c.loadConfig()
		if err != nil {
			return err
		}
		aliases, err := config.section([]string{"aliases"}, true)
		switch {
		case err != nil:
			return err
		case len(args) == 0 && *remove:
			return usagef("-r needs a name; cl alias lists them")
		case len(args) == 0:
			return c.listAliases(aliases)
		}
		old, known := aliases[args[0]]
		switch {
		case *remove && !known:
			return usagef("there is no alias %q%s", args[0], didYouMean("", nearest(args[0], slices.Collect(maps.Keys(aliases)))))
		case *remove:
			delete(aliases, args[0])
			return c.saved(config, args[0], nil)
		case len(args) == 1:
			return c.tell(map[string]any{args[0]: old}, "%s: %s", args[0], orNone(old))
		case !strings.Contains(args[1], "://"):
			return usagef("%q is no address: want http://HOST:PORT or https://HOST", args[1])
		}
		aliases[args[0]] = args[1]
		return c.saved(config, args[0], args[1])
	}
	return cmd
}

// saved keeps the configuration, and prints a key's new value as JSON alone: CodaLab's cl prints nothing.
func (c *cli) saved(config *configFile, key string, value any) error {
	if err := config.save(); err != nil || !c.asJSON {
		return err
	}
	return c.printJSON(map[string]any{key: value})
}

func (c *cli) listAliases(aliases map[string]any) error {
	if c.asJSON {
		return c.printJSON(aliases)
	}
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		if err := c.print(name, ": ", orNone(aliases[name])); err != nil {
			return err
		}
	}
	return nil
}

// configCommand is bundle_cli.py: do_config_command.
func (c *cli) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config <key> [<value>]", Short: "Show or set the configuration of cl",
		Long: `Show or set a key of config.json in $CODALAB_HOME, which CodaLab's own cl reads,
too. This cl uses these keys, and keeps all others:

  cli/default_address  the server, where cl work has chosen none
  aliases/<name>       the address of a server; see cl alias`,
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: completeWords("cli/default_address", "aliases/"),
	}
	remove := cmd.Flags().BoolP("remove", "r", false, "remove the key")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		config, err := c.loadConfig()
		if err != nil {
			return err
		}
		path := strings.Split(args[0], "/")
		key := path[len(path)-1]
		section, err := config.section(path[:len(path)-1], len(args) == 2)
		if err != nil {
			return err
		}
		old, known := section[key]
		switch {
		case len(args) == 2 && *remove:
			return usagef("-r needs no value")
		case len(args) == 2:
			section[key] = configValue(args[1])
			return c.saved(config, args[0], section[key])
		case !known:
			return refusef("%s is not set", args[0])
		case *remove:
			delete(section, key)
			return c.saved(config, args[0], nil)
		}
		return c.tell(map[string]any{args[0]: old}, "%s", pythonText(old))
	}
	return cmd
}

// configValue is a value in the type that its text has.
func configValue(text string) any {
	switch text {
	case "true":
		return true
	case "false":
		return false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f
	}
	return text
}

// readAllText reads a text to its end.
func readAllText(r io.Reader) (string, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("read input: %w", err)
	}
	return string(data), nil
}
