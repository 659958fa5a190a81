package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// configFile is config.json in $CODALAB_HOME, which cl shares with CodaLab's own cl. cl preserves unknown
// keys (codalab_manager.py: config).
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

// section returns the object under a path of keys. If the path does not exist, it makes the object if
// create is set, else it returns nil.
func (f *configFile) section(path []string, create bool) (map[string]any, error) {
	at := f.values
	for _, key := range path {
		next, ok := at[key].(map[string]any)
		switch {
		case !ok && at[key] != nil:
			return nil, refusef("%s is a value, which has no keys", key)
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
			return refusef("-r needs a name; cl alias lists them")
		case len(args) == 0:
			return c.listAliases(aliases)
		}
		old, known := aliases[args[0]]
		switch {
		case *remove && !known:
			return refusef("there is no alias %q%s", args[0], argparse.DidYouMean("", argparse.Nearest(args[0], slices.Collect(maps.Keys(aliases)))))
		case *remove:
			delete(aliases, args[0])
			return c.saved(config, args[0], nil)
		case len(args) == 1:
			return c.printResult(map[string]any{args[0]: old}, "%s: %s", args[0], orNone(old))
		case !strings.Contains(args[1], "://"):
			return refusef("%q is no address: want http://HOST:PORT or https://HOST", args[1])
		}
		aliases[args[0]] = args[1]
		return c.saved(config, args[0], args[1])
	}
	return cmd
}

// saved writes the configuration. With --json it prints the key's new value; CodaLab's cl prints nothing.
func (c *cli) saved(config *configFile, key string, value any) error {
	if err := saveFile(config.path, config.values); err != nil || !c.asJSON {
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
			return refusef("-r needs no value")
		case len(args) == 2:
			section[key] = configValue(args[1])
			return c.saved(config, args[0], section[key])
		case !known:
			return refusef("%s is not set", args[0])
		case *remove:
			delete(section, key)
			return c.saved(config, args[0], nil)
		}
		return c.printResult(map[string]any{args[0]: old}, "%s", codalab.PythonStr(old))
	}
	return cmd
}

// configValue converts a text to a boolean, a number or a text.
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
