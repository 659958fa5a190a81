package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/export"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const importHelp = `Make a worksheet and its bundles from an archive of cl export.

Nothing is sent before the whole archive has been compared with its digests; that
needs a file, and no pipe. Bundles keep their uuids, as with cl add bundle between
servers: one that the server has already is kept, and only shown. So the same
command goes on after an interruption. Bundles and worksheet become yours, and are
shared as a new worksheet is.`

func (c *cli) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "import <archive>", Short: "Make a worksheet from an archive of cl export", Long: importHelp, Args: cobra.ExactArgs(1),
	}
	name := cmd.Flags().StringP("worksheet", "w", "", "name of the new worksheet; default: that in the archive")
	_ = cmd.RegisterFlagCompletionFunc("worksheet", cobra.NoFileCompletions) // the flag is there
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("worksheet") {
			if err := checkName(*name); err != nil {
				return err
			}
		}
		return c.importFile(cmd.Context(), args[0], *name)
	}
	return cmd
}

// importFile imports an archive.
func (c *cli) importFile(ctx context.Context, file, name string) error {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		return refusef("%s is no file: cl import reads the end of an archive first, so that it needs a file, and no pipe.", file)
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return refusef("There is no file %s.", file)
	}
	if err != nil {
		return refusef("%v", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	a, err := export.Open(f, info.Size())
	if err != nil {
		return refusef("%s: %v", file, err)
	}
	at, err := c.workspace("")
	if err != nil {
		return err
	}
	if err := (&upload{cli: c}).checkQuota(ctx, at, a.Size); err != nil {
		return err
	}
	p := c.progress("Checked", a.Size)
	err = a.Verify(ctx, p.add)
	p.end()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return refusef("%s: %v", file, err)
	}
	return c.importSheet(ctx, at, a, name)
}

// imported is an import in JSON.
type imported struct {
	UUID    string    `json:"uuid"`
	Name    string    `json:"name"`
	Bundles int       `json:"bundles"`
	LeftOut []leftOne `json:"left_out"`
}

// importSheet makes the worksheet of an archive. The bundles come first, so that no item shows a missing one.
func (c *cli) importSheet(ctx context.Context, at *workspace, a *export.Archive, name string) error {
	if name == "" {
		name = a.Worksheet.Name
	}
	if err := checkName(name); err != nil {
		return err
	}
	sheet, err := c.importTarget(ctx, at, name)
	if err != nil {
		return err
	}
	left, err := c.importBundles(ctx, at, a, sheet.UUID)
	if err != nil {
		return err
	}
	items, err := c.importItems(ctx, at, a, left)
	switch {
	case err != nil:
		return err
	case len(sheet.Items) > 0 && !slices.Equal(itemKeys(sheet.Items), itemKeys(items)):
		return refusef("The worksheet %s has other items already: choose another name with -w.", name)
	case len(sheet.Items) == 0 && len(items) > 0:
		if err := at.AddItems(ctx, sheet.UUID, items, true); err != nil {
			return err
		}
	}
	edit := codalab.WorksheetEdit{Title: &a.Worksheet.Title, Tags: &a.Worksheet.Tags}
	if a.Worksheet.Title != "" || len(a.Worksheet.Tags) > 0 {
		if err := at.UpdateWorksheet(ctx, client.WorksheetChange{UUID: sheet.UUID, WorksheetEdit: edit}); err != nil {
			return err
		}
	}
	if c.asJSON {
		err = c.printJSON(imported{sheet.UUID, name, len(a.Bundles) - len(left), leftOnes(left)})
	} else {
		err = c.print(fmt.Sprintf("Imported %s(%s) with %d bundles.", name, sheet.UUID, len(a.Bundles)-len(left)))
	}
	return errors.Join(err, incomplete(left))
}

// importTarget returns the worksheet of a name, with its items. It makes the worksheet unless an earlier import has.
func (c *cli) importTarget(ctx context.Context, at *workspace, name string) (client.Worksheet, error) {
	found, err := at.FindWorksheet(ctx, "", name)
	if isNotFound(err) {
		return at.CreateWorksheet(ctx, name)
	}
	if err != nil {
		return found, err
	}
	sheet, err := at.WorksheetItems(ctx, found.UUID)
	if err != nil {
		return sheet, err
	}
	if sheet.Permission == nil || *sheet.Permission < codalab.PermissionAll || sheet.Frozen != nil {
		return sheet, refusef("There is a worksheet %s already, which you may not change: choose another name with -w.", name)
	}
	return sheet, nil
}

// importBundles copies the bundles that the server does not have, and returns those that it cannot.
func (c *cli) importBundles(ctx context.Context, at *workspace, a *export.Archive, sheet string) (left []export.Bundle, err error) {
	for _, b := range a.Bundles {
		if b.LeftOut != "" {
			there, err := at.Bundle(ctx, b.UUID)
			switch {
			case isNotFound(err), err == nil && there.State == codalab.StateUploading:
				c.warn("%s is left out: %s.", exportedText(b), termtext.OneLine(b.LeftOut))
				left = append(left, b)
			case err != nil:
				return nil, err
			}
			continue
		}
		if _, err := c.copyUnlessPresent(ctx, a, b.UUID, at, sheet, copyOptions{killed: true}); err != nil {
			return nil, fmt.Errorf("import %s: %w", termtext.OneLine(b.Name()), explain(err))
		}
	}
	return left, nil
}

// importItems returns the items of an archive's worksheet, but for those that the server cannot show.
func (c *cli) importItems(ctx context.Context, at *workspace, a *export.Archive, left []export.Bundle) ([]client.Item, error) {
	var items []client.Item
	for _, item := range a.Items {
		one := client.Item{WorksheetItem: codalab.WorksheetItem{Type: item.Type, Value: item.Value}}
		switch {
		case item.Type == codalab.ItemBundle:
			if slices.ContainsFunc(left, func(b export.Bundle) bool { return b.UUID == item.Bundle }) {
				continue
			}
			one = bundleItem(item.Bundle)
		case item.Worksheet != nil:
			w, err := at.Worksheet(ctx, item.Worksheet.UUID)
			if codalab.IsStatus(err, 400, 403, 404) {
				c.warn("Worksheet %s is left out: it is on another server.", termtext.OneLine(item.Worksheet.Name))
				continue
			}
			if err != nil {
				return nil, err
			}
			one.Worksheet = &w
		}
		items = append(items, one)
	}
	return items, nil
}

// itemKeys tell whether two worksheets have the same items.
func itemKeys(items []client.Item) []string {
	var keys []string
	for _, item := range items {
		key := item.Type + " " + item.Value
		if item.Bundle != nil {
			key = item.Type + " " + item.Bundle.UUID
		}
		if item.Worksheet != nil {
			key = item.Type + " " + item.Worksheet.UUID
		}
		keys = append(keys, key)
	}
	return keys
}
