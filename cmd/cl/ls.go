package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// lsFields are the columns of ls (bundle_cli.py: DEFAULT_BUNDLE_INFO_LIST_FIELDS).
const lsFields = "uuid,name,summary,owner,created,data_size,state"

// lsCommand is bundle_cli.py: do_ls_command.
func (c *cli) lsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "ls",
		Short:             "List the bundles on a worksheet",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	worksheet := worksheetFlag(cmd)
	uuidOnly := cmd.Flags().BoolP("uuid-only", "u", false, "print only uuids")
	fields := cmd.Flags().StringP("field", "f", lsFields, "print these comma-separated fields")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.listBundles(cmd.Context(), *worksheet, *uuidOnly, strings.Split(*fields, ","))
	}
	return cmd
}

func (c *cli) listBundles(ctx context.Context, worksheet string, uuidOnly bool, fields []string) error {
	w, address, err := c.worksheetBundles(ctx, worksheet)
	if err != nil {
		return err
	}
	if uuidOnly {
		for _, b := range w.Bundles {
			if err := c.print(b.UUID); err != nil {
				return err
			}
		}
		return nil
	}
	if err := c.print(worksheetHeading(address, w)); err != nil {
		return err
	}
	columns := []column{{name: "ref", right: true}}
	for _, f := range fields {
		columns = append(columns, column{name: f, right: f == "data_size"})
	}
	rows := make([][]string, 0, len(w.Bundles))
	for i, b := range w.Bundles {
		row := []string{fmt.Sprintf("^%d", len(w.Bundles)-i)}
		for _, f := range fields {
			row = append(row, cell(b, f))
		}
		rows = append(rows, row)
	}
	return printTable(c.Stdout, columns, rows)
}

// worksheetBundles returns a worksheet with its bundles, and its server.
func (c *cli) worksheetBundles(ctx context.Context, spec string) (client.Worksheet, string, error) {
	at, uuid, err := c.openWorksheet(ctx, spec)
	if err != nil {
		return client.Worksheet{}, "", err
	}
	w, err := at.WorksheetBundles(ctx, uuid)
	return w, at.Address(), err
}

// cell is a field in a table. A long summary is cut.
func cell(b client.BundleInfo, field string) string {
	switch field {
	case "uuid":
		return b.UUID[:min(8, len(b.UUID))]
	case "summary":
		line, rest, _ := strings.Cut(summary(b.Bundle), "\n")
		if short := []rune(line); len(short) > 48 || rest != "" {
			return string(short[:min(48, len(short))]) + "..."
		}
		return line
	case "data_size", "created":
		if !b.Metadata.Has(field) {
			return ""
		}
		return formatMetadata(field, b.Metadata[field])
	}
	if v := fieldOf(b, field); v != nil {
		return pythonText(v)
	}
	return ""
}

// worksheetHeading describes a worksheet above its bundles (bundle_cli.py:
// _worksheet_description).
func worksheetHeading(address string, w client.Worksheet) string {
	title := none
	if w.Title != nil {
		title = *w.Title
	}
	mark := func(s string, on bool, mark string) string {
		if on {
			return s + " [" + mark + "]"
		}
		return s
	}
	lines := []string{
		"### Worksheet: " + worksheetURL(address, w),
		"### Title: " + title,
		"### Tags: " + strings.Join(w.Tags, " "),
		"### Owner: " + mark(userText(w.Owner), w.IsAnonymous, "anonymous"),
		"### Permissions: " + mark(groupsText(w.GroupPermissions), w.Frozen != nil, "frozen"),
	}
	for i, line := range lines {
		lines[i] = termtext.OneLine(line)
	}
	return strings.Join(lines, "\n")
}
