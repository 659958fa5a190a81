package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

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
			return refusef("cl store rm needs the uuid of a store; cl store ls lists them")
		default:
			return refusef("cl store %s is not supported%s. Only the following subcommands are supported: 'cl store add', 'cl store ls', 'cl store rm'.",
				args[0], argparse.DidYouMean("", argparse.Nearest(args[0], verbs)))
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
		return refusef("Bundle store %s only supports storage type: %s", s.URL, kind)
	}
	if s.Name == "" || s.StorageType == "" {
		return refusef("a store needs --name, and --storage-type or --url")
	}
	added, err := at.AddBundleStore(ctx, s)
	if err != nil {
		return c.storesAreElsewhere(err)
	}
	return c.printUUID(added.ID)
}

// storageType returns the type of a store with this URL, empty for an unknown scheme
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

// storesAreElsewhere replaces the error of a server without bundle stores by an explanation: only
// CodaLab's own server has them.
func (c *cli) storesAreElsewhere(err error) error {
	if codalab.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		return refusef("this server has one store, its own; only CodaLab's own server has further bundle stores")
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
