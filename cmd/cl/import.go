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
shared as a new worksheet is.

cl-server gives no uuid out twice: a bundle that was deleted there stays deleted.
It is left out, as is one that others have not shared with you, or are uploading,
and one whose upload has failed, which the server then keeps.
cl import names each, brings all others, and ends with exit code 1.

With --new-uuids all bundles are copies with uuids of their own, also on the server
that they came from: they depend on each other, the worksheet shows them, and each
has its old uuid in a tag (copy-of=UUID). Each worksheet (-w) gets other copies.`

func (c *cli) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "import <archive>", Short: "Make a worksheet from an archive of cl export", Long: importHelp, Args: cobra.ExactArgs(1),
	}
	name := cmd.Flags().StringP("worksheet", "w", "", "name of the new worksheet; default: that in the archive")
	_ = cmd.RegisterFlagCompletionFunc("worksheet", cobra.NoFileCompletions) // the flag is there
	renew := cmd.Flags().Bool("new-uuids", false, "make copies with uuids of their own")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("worksheet") {
			if err := checkName(*name); err != nil {
				return err
			}
		}
		return c.importFile(cmd.Context(), args[0], importOptions{*name, *renew})
	}
	return cmd
}

type importOptions struct {
	name     string
	newUUIDs bool
}

// importFile imports an archive.
func (c *cli) importFile(ctx context.Context, file string, o importOptions) error {
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
	if o.newUUIDs && slices.ContainsFunc(a.Bundles, export.Bundle.Bare) {
		return refusef("The archive was exported with --no-contents, so that --new-uuids can make no copies of its bundles: import one that has their contents.")
	}
	if o.name == "" {
		o.name = a.Worksheet.Name
	}
	if err := checkName(o.name); err != nil {
		return err
	}
	at, err := c.workspace("")
	if err != nil {
		return err
	}
	sheet, err := c.earlierImport(ctx, at, a, o)
	if err != nil {
		return err
	}
	if err := c.checkRoom(ctx, at, a, o.newUUIDs && sheet.UUID == ""); err != nil {
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
	if sheet.UUID == "" {
		if sheet, err = at.CreateWorksheet(ctx, o.name); err != nil {
			return err
		}
		moveTo(a, sheet, o)
	}
	return c.importSheet(ctx, at, a, sheet)
}

// checkRoom compares the quota with what the server does not have yet, which is all if no bundle has a uuid yet. It refuses an
// archive without contents, unless the server has them.
func (c *cli) checkRoom(ctx context.Context, at *workspace, a *export.Archive, all bool) error {
	need, bare := int64(0), 0
	for _, b := range a.Bundles {
		if b.Contents == nil && !b.Bare() {
			continue
		}
		if all && b.Contents != nil {
			need += a.SizeOf(b.UUID)
			continue
		}
		there, err := at.Bundle(ctx, b.UUID)
		switch {
		case isNotFound(err) && b.Bare():
			bare++
		case isNotFound(err), err == nil && there.State == codalab.StateUploading:
			need += a.SizeOf(b.UUID)
		case err != nil && !codalab.IsStatus(err, 403):
			return err
		}
	}
	if bare > 0 {
		return refusef("The archive was exported with --no-contents, and the server lacks %d of its bundles: import one that has their contents.", bare)
	}
	return (&upload{cli: c}).checkQuota(ctx, at, need)
}

// imported is an import in JSON.
type imported struct {
	UUID    string    `json:"uuid"`
	Name    string    `json:"name"`
	Bundles int       `json:"bundles"`
	LeftOut []leftOne `json:"left_out"`
}

// importSheet gives a worksheet what an archive has. The bundles come first, so that no item shows a missing one.
func (c *cli) importSheet(ctx context.Context, at *workspace, a *export.Archive, sheet client.Worksheet) error {
	left, err := c.importBundles(ctx, at, a, sheet.UUID)
	if err != nil {
		return err
	}
	items, err := c.importItems(ctx, at, a, left)
	if err != nil {
		return err
	}
	if err := sendItems(ctx, at, a, sheet, items); err != nil {
		return err
	}
	edit := codalab.WorksheetEdit{Title: &a.Worksheet.Title, Tags: &a.Worksheet.Tags}
	if a.Worksheet.Title != "" || len(a.Worksheet.Tags) > 0 {
		if err := at.UpdateWorksheet(ctx, client.WorksheetChange{UUID: sheet.UUID, WorksheetEdit: edit}); err != nil {
			return err
		}
	}
	if c.asJSON {
		err = c.printJSON(imported{sheet.UUID, sheet.Name, len(a.Bundles) - len(left), leftOnes(left)})
	} else {
		err = c.print(fmt.Sprintf("Imported %s(%s) with %d bundles.", sheet.Name, sheet.UUID, len(a.Bundles)-len(left)))
	}
	if err == nil && len(left) > 0 {
		err = refusef("%d of the bundles are left out.", len(left))
	}
	return err
}

// earlierImport returns the worksheet of this name, to which an interrupted import has given a part of the archive, or nothing
// yet; none if it has to be made.
func (c *cli) earlierImport(ctx context.Context, at *workspace, a *export.Archive, o importOptions) (client.Worksheet, error) {
	found, err := at.FindWorksheet(ctx, "", o.name)
	if isNotFound(err) {
		return client.Worksheet{}, nil
	}
	if err != nil {
		return found, err
	}
	sheet, err := at.WorksheetItems(ctx, found.UUID)
	if err != nil {
		return sheet, err
	}
	if sheet.Permission == nil || *sheet.Permission < codalab.PermissionAll || sheet.Frozen != nil {
		return sheet, refusef("There is a worksheet %s already, which you may not change: choose another name with -w.", o.name)
	}
	moveTo(a, sheet, o)
	return sheet, checkItems(sheet, a)
}

// moveTo fits what an archive has to the worksheet that is made of it.
func moveTo(a *export.Archive, sheet client.Worksheet, o importOptions) {
	a.MoveSweep(sheet.UUID)
	if o.newUUIDs {
		a.Rename(sheet.UUID)
	}
}

// checkItems refuses a worksheet with other items than an earlier import of the archive has made. That may have left some out.
func checkItems(sheet client.Worksheet, a *export.Archive) error {
	all := archiveKeys(a)
	for _, key := range itemKeys(sheet.Items) {
		i := slices.Index(all, key)
		if i < 0 {
			return refusef("The worksheet %s has other items already: choose another name with -w.", sheet.Name)
		}
		all = all[i+1:]
	}
	return nil
}

// importBundles copies the bundles that the server does not have, and returns those that it cannot.
func (c *cli) importBundles(ctx context.Context, at *workspace, a *export.Archive, sheet string) (left []export.Bundle, err error) {
	me, err := at.User(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range a.Bundles {
		b.LeftOut, err = c.importBundle(ctx, at, a, b, sheet, me.ID)
		if err != nil {
			return nil, fmt.Errorf("import %s: %w", termtext.OneLine(b.Name()), explain(err))
		}
		if b.LeftOut != "" {
			c.warn("%s is left out: %s.", exportedText(b), termtext.OneLine(b.LeftOut))
			left = append(left, b)
		}
	}
	return left, nil
}

// importBundle copies a bundle unless the server has it. If the archive lacks the bundle, or the server refuses it, leftOut is
// the reason.
func (c *cli) importBundle(ctx context.Context, at *workspace, a *export.Archive, b export.Bundle, sheet, me string) (leftOut string, err error) {
	there, err := at.Bundle(ctx, b.UUID)
	begun := err == nil && there.State == codalab.StateUploading
	switch {
	case codalab.IsStatus(err, 403), err == nil && there.Type == codalab.TypePrivate: // as CodaLab's own server shows it
		return "it is on the server, and not shared with you", nil
	case err != nil && !isNotFound(err):
		return "", err
	case err == nil && brokenUpload(there.Bundle, codalab.Bundle{State: b.State, Metadata: b.Metadata}):
		keeps, err := keepsUUIDs(ctx, at)
		if keeps {
			return "an earlier upload of it has failed there, and cl-server gives no uuid out twice: --new-uuids with another worksheet (-w) makes copies", err
		}
		return "an earlier upload of it has failed there; cl rm " + b.UUID + " removes it, and the same command goes on", err
	case err == nil && !begun:
		return "", nil
	case b.LeftOut != "":
		return b.LeftOut, nil
	case b.Type == "" || !b.State.Final():
		return "the archive does not have it", nil
	}
	archived, err := a.Bundle(ctx, b.UUID)
	if err != nil {
		return "", err
	}
	if begun && !sameUpload(there.Bundle, archived.Bundle, me) {
		return "another upload of it is under way", nil
	}
	_, err = c.copyMissing(ctx, a, archived, at, sheet, copyOptions{killed: true}, begun)
	if codalab.IsTaken(err) {
		return "the server has its uuid already: the bundle was deleted there, or is not shared with you", nil
	}
	return "", err
}

// importItems returns the items of an archive's worksheet, but for those that the server cannot show.
func (c *cli) importItems(ctx context.Context, at *workspace, a *export.Archive, left []export.Bundle) ([]client.Item, error) {
	missing := map[string]bool{}
	for _, b := range left {
		missing[b.UUID] = true
	}
	var items []client.Item
	for _, item := range a.Items {
		one := client.Item{WorksheetItem: codalab.WorksheetItem{Type: item.Type, Value: item.Value}}
		switch {
		case item.Type == codalab.ItemBundle:
			if missing[item.Bundle] {
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

// A part of the items goes in one request, of which servers bound the items and the bytes.
const (
	mostItems     = 5_000
	mostItemBytes = 1 << 20
)

// itemParts divides items into parts for one request each.
func itemParts(items []client.Item) (parts [][]client.Item) {
	for from := 0; from < len(items); {
		to, size := from, 0
		for to < len(items) && to-from < mostItems && (to == from || size+len(items[to].Value) <= mostItemBytes) {
			size += len(items[to].Value)
			to++
		}
		parts = append(parts, items[from:to])
		from = to
	}
	return parts
}

// sendItems makes these the items of a worksheet that still has none but those of an import.
func sendItems(ctx context.Context, at *workspace, a *export.Archive, sheet client.Worksheet, items []client.Item) error {
	now, err := at.WorksheetItems(ctx, sheet.UUID) // contents take their time
	if err == nil {
		err = checkItems(now, a)
	}
	if err != nil || slices.Equal(itemKeys(now.Items), itemKeys(items)) {
		return err
	}
	for i, part := range itemParts(items) {
		if err := at.AddItems(ctx, sheet.UUID, part, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// archiveKeys are the itemKeys of an archive.
func archiveKeys(a *export.Archive) []string {
	var items []client.Item
	for _, item := range a.Items {
		one := client.Item{WorksheetItem: codalab.WorksheetItem{Type: item.Type, Value: item.Value}}
		if item.Type == codalab.ItemBundle {
			one = bundleItem(item.Bundle)
		}
		if item.Worksheet != nil {
			one.Worksheet = &client.Worksheet{Worksheet: codalab.Worksheet{WorksheetName: *item.Worksheet}}
		}
		items = append(items, one)
	}
	return itemKeys(items)
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
