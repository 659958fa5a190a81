package main

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// makeCommand is bundle_cli.py: do_make_command.
func (c *cli) makeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "make [<key>:]<bundle>[/<path>]...", Short: "Make a bundle of parts of others",
		Long: `Make a bundle of parts of other bundles, and print its uuid. The parts are
copied on the server.

  make <bundle>/<path>          a copy of that file or directory
  make a:<bundle> b:<bundle>/x  a directory that has a and b`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	read := metadataFlags(cmd.Flags(), codalab.TypeMake)
	edit := cmd.Flags().BoolP("edit", "e", false, "edit the metadata in $EDITOR first")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.makeBundle(cmd.Context(), *worksheet, args, read(), *edit)
	}
	return cmd
}

func (c *cli) makeBundle(ctx context.Context, worksheet string, specs []string, m codalab.Metadata, edit bool) error {
	targets, err := makeTargets(specs)
	if err != nil {
		return err
	}
	if m.String("name") == "" {
		m["name"] = makeName(specs)
	}
	if err := c.checkNew(ctx, codalab.TypeMake, m, edit); err != nil {
		return err
	}
	at, uuid, err := c.openWorksheet(ctx, worksheet)
	if err != nil {
		return err
	}
	deps, err := at.dependencies(ctx, targets)
	if err != nil {
		return err
	}
	made, err := c.create(ctx, at, client.NewBundle{Worksheet: uuid, Type: codalab.TypeMake, Metadata: m, Dependencies: deps})
	if err != nil {
		return err
	}
	return c.printUUID(made)
}

// makeTargets reads the parts of a make bundle.
func makeTargets(specs []string) ([]keyedTarget, error) {
	var targets []keyedTarget
	for _, spec := range specs {
		key, target, _, err := splitKey(spec)
		if err != nil {
			return nil, err
		}
		for _, other := range targets {
			switch {
			case other.key == key && key == "":
				return nil, usagef("Must specify keys when packaging multiple targets!")
			case other.key == key:
				return nil, usagef("Duplicate key: %s", key)
			}
		}
		targets = append(targets, keyedTarget{key, target})
	}
	return targets, disjoint(targets)
}

// makeName is a make bundle's name unless its user gives one (codalab/lib/metadata_defaults.py:
// get_default_name).
func makeName(specs []string) string {
	if len(specs) == 1 && !strings.Contains(specs[0], ":") {
		return specs[0][strings.LastIndexByte(specs[0], '/')+1:]
	}
	return defaultName(codalab.TypeMake, strings.Join(specs, " "))
}

// rmCommand is bundle_cli.py: do_rm_command.
func (c *cli) rmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm <bundle>...", Short: "Delete bundles, for ever",
		Long: `Delete bundles with their contents, for ever, and print their uuids. A bundle on
which others depend, that is on several worksheets, or that still runs stays
unless you say more; cl kill ends a run first.`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	var o client.DeleteOptions
	cmd.Flags().BoolVar(&o.Force, "force", false, "also bundles on which others depend, which then lack them")
	cmd.Flags().BoolVarP(&o.Recursive, "recursive", "r", false, "also all bundles that depend on them")
	cmd.Flags().BoolVarP(&o.DataOnly, "data-only", "d", false, "only the contents: keep the bundles")
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "i", false, "delete nothing, and list what would be deleted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.removeBundles(cmd.Context(), *worksheet, args, o)
	}
	return cmd
}

func (c *cli) removeBundles(ctx context.Context, worksheet string, specs []string, o client.DeleteOptions) error {
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, specs)
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

// writeCommand is bundle_cli.py: do_write_command.
func (c *cli) writeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "write <bundle>/<file> <text>", Short: "Write a small file into a running bundle",
		Long: "Write a text to a file in the working directory of a running bundle, which its command\n" +
			"may read. The file's name has letters, digits, dots, dashes and underscores.",
		Args: cobra.ExactArgs(2), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, target, err := c.target(cmd.Context(), *worksheet, args[0])
		if err != nil {
			return err
		}
		if err := at.WriteToBundle(cmd.Context(), target, args[1]); err != nil {
			return err
		}
		return c.printUUID(target.BundleUUID)
	}
	return cmd
}

// netcatCommand is bundle_cli.py: do_netcat_command.
func (c *cli) netcatCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "netcat <bundle> <port> [---] <message>", Short: "Send a message to a port of a running bundle",
		Long: "Send a message to a TCP port of a running bundle, and print what comes back. Runs on a\n" +
			"Slurm cluster take no connections.",
		Args: cobra.ExactArgs(3), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	file := cmd.Flags().StringP("file", "f", "", "add this file to the end of the message")
	cmd.Flags().Bool("verbose", false, "has no effect")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		port, err := strconv.Atoi(args[1])
		if err != nil || port < 1 || port > 65535 {
			return commandLineError(cmd, notAPort(args[1]))
		}
		message := args[2]
		if *file != "" {
			text, err := c.readFile(*file)
			if err != nil {
				return err
			}
			message += text
		}
		at, target, err := c.target(cmd.Context(), *worksheet, args[0])
		if err != nil {
			return err
		}
		answer, err := at.Netcat(cmd.Context(), target.BundleUUID, port, message)
		if err != nil {
			return err
		}
		if c.asJSON {
			return c.printJSON(map[string]string{"uuid": target.BundleUUID, "answer": string(answer)})
		}
		_, err = termtext.Raw(c.Stdout).Write(answer)
		return err
	}
	return cmd
}

func notAPort(text string) error {
	return refusef("%q is no port: want a number from 1 to 65535", text)
}

// storeCommand is bundle_cli.py: do_store_command.
func (c *cli) storeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "store (ls | add | rm <store>)", Short: "List, add and remove bundle stores of CodaLab's own server",
		Long: "Bundle stores are places other than its own disk where CodaLab's own server keeps\n" +
			"contents. cl-server has none.",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: completeWords("add", "ls", "rm"),
	}
	var s client.BundleStore
	cmd.Flags().StringVarP(&s.Name, "name", "n", "", "name of a new store")
	cmd.Flags().StringVar(&s.StorageType, "storage-type", "", "disk, azure_blob or gcs; default: as the URL says")
	cmd.Flags().StringVar(&s.StorageFormat, "storage-format", "", "uncompressed or compressed_v1; default: the server's choice")
	cmd.Flags().StringVar(&s.URL, "url", "", "where it is, such as azfs://container or gs://bucket")
	cmd.Flags().StringVar(&s.Authentication, "authentication", "", "key for it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		verbs := []string{"add", "ls", "rm"}
		switch {
		case args[0] == "add" && len(args) == 1, args[0] == "ls" && len(args) == 1, args[0] == "rm" && len(args) == 2:
		case args[0] == "rm":
			return usagef("cl store rm needs the uuid of a store; cl store ls lists them")
		default:
			return usagef("cl store %s is not supported%s. Only the following subcommands are supported: 'cl store add', 'cl store ls', 'cl store rm'.",
				args[0], didYouMean("", nearest(args[0], verbs)))
		}
		at, err := c.workspace("")
		if err != nil {
			return err
		}
		switch args[0] {
		case "add":
			return c.addStore(cmd.Context(), at, s)
		case "rm":
			if err := at.RemoveBundleStore(cmd.Context(), args[1]); err != nil {
				return c.storesAreElsewhere(err)
			}
			return c.printUUID(args[1])
		}
		return c.listStores(cmd.Context(), at)
	}
	return cmd
}

func (c *cli) addStore(ctx context.Context, at *workspace, s client.BundleStore) error {
	if kind := storageType(s.URL); kind != "" && s.StorageType == "" {
		s.StorageType = kind
	} else if kind != "" && s.StorageType != kind {
		return usagef("Bundle store %s only supports storage type: %s", s.URL, kind)
	}
	if s.Name == "" || s.StorageType == "" {
		return usagef("a store needs --name, and --storage-type or --url")
	}
	added, err := at.AddBundleStore(ctx, s)
	if err != nil {
		return c.storesAreElsewhere(err)
	}
	return c.printUUID(added.ID)
}

// storageType is the type of a store with this URL; empty if that tells none
// (codalab/lib/beam/filesystems.py and codalab/worker/bundle_state.py: parse_linked_bundle_url).
func storageType(url string) string {
	switch {
	case strings.HasPrefix(url, "azfs://"):
		return "azure_blob"
	case strings.HasPrefix(url, "gs://"):
		return "gcs"
	}
	return ""
}

// storesAreElsewhere says that only CodaLab's own server has bundle stores, if the server has none.
func (c *cli) storesAreElsewhere(err error) error {
	if isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusMethodNotAllowed) {
		return refusef("this server has no bundle stores beside its own; only CodaLab's own server has")
	}
	return err
}

// storeView is a bundle store in JSON.
type storeView struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	StorageType   string `json:"storage_type"`
	StorageFormat string `json:"storage_format"`
	URL           string `json:"url,omitempty"`
}

func (c *cli) listStores(ctx context.Context, at *workspace) error {
	stores, err := at.BundleStores(ctx)
	if err != nil {
		return err
	}
	views := []storeView{}
	var rows [][]string
	for _, s := range stores {
		views = append(views, storeView{s.ID, s.Name, s.StorageType, s.StorageFormat, s.URL})
		rows = append(rows, []string{s.ID, s.Name, s.StorageType, s.StorageFormat})
	}
	if c.asJSON {
		return c.printJSON(views)
	}
	return printTable(c.Stdout, []column{{name: "id"}, {name: "name"}, {name: "storage_type"}, {name: "storage_format"}}, rows)
}
