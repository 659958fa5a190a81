package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/export"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const exportHelp = `Write a worksheet with its bundles to one ZIP archive.

The archive has the contents of the bundles, a page (index.html) that opens from
the disk, where the bundles came from (an RO-Crate), and the digests of all files.
cl import makes the worksheet on another server.

The contents of a bundle that has not ended, or that you may not read, are not in
the archive: cl export names the bundle, and ends with exit code 1.`

func (c *cli) exportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "export [<worksheet>]", Short: "Write a worksheet with its bundles to an archive", Long: exportHelp,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.completeWorksheets,
	}
	output := cmd.Flags().StringP("output-path", "o", "", "path of the archive, or - for standard output; default: its name and .zip in the current directory")
	force := cmd.Flags().BoolP("force", "f", false, "replace an existing file")
	none := cmd.Flags().Bool("no-contents", false, "leave out the contents of the bundles, which cl import then cannot make")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, uuid, err := c.openWorksheet(cmd.Context(), strings.Join(args, ""))
		if err != nil {
			return err
		}
		sheet, err := at.WorksheetItems(cmd.Context(), uuid)
		if err != nil {
			return err
		}
		return c.exportSheet(cmd.Context(), at, sheet, exportOptions{*output, *force, *none})
	}
	return cmd
}

type exportOptions struct {
	output     string
	force      bool
	noContents bool
}

// exported is an export in JSON.
type exported struct {
	UUID    string    `json:"uuid"`
	Path    string    `json:"path"`
	Bundles int       `json:"bundles"`
	Size    int64     `json:"size"`
	LeftOut []leftOne `json:"left_out"`
}

// leftOne is a bundle that a command has left out.
type leftOne struct {
	UUID   string `json:"uuid"`
	Reason string `json:"reason"`
}

func (c *cli) exportSheet(ctx context.Context, at *workspace, sheet client.Worksheet, o exportOptions) error {
	if o.output == standardInput { // - is standard output here
		return c.exportToOutput(ctx, at, sheet, o)
	}
	if o.output == "" {
		o.output = localName(sheet.Name, "") + ".zip"
	}
	final, err := filepath.Abs(o.output)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	free := func() error {
		if info, err := os.Lstat(final); !errors.Is(err, fs.ErrNotExist) && (!o.force || err != nil || info.IsDir()) {
			return refusef("Local file/directory '%s' already exists.", o.output)
		}
		return nil
	}
	if err := free(); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(final), partName(final)+"*")
	if err != nil {
		return unwritable(filepath.Dir(final), err)
	}
	written, err := c.export(ctx, part, at, sheet, o)
	if err == nil {
		err = part.Chmod(0o644)
	}
	if err = errors.Join(err, part.Close()); err == nil {
		err = free() // it may have come meanwhile
	}
	if err == nil {
		err = os.Rename(part.Name(), final)
	}
	if err != nil {
		return errors.Join(exportFailed(ctx, final, err), os.Remove(part.Name()))
	}
	if err := c.exportDone(written, final); err != nil {
		return err
	}
	return incomplete(written.LeftOut())
}

// exportFailed is the error for the user.
func exportFailed(ctx context.Context, final string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return refusef("There is no more room in %s: free some, or choose another path with -o.", filepath.Dir(final))
	}
	return err
}

// exportToOutput writes the archive to standard output.
func (c *cli) exportToOutput(ctx context.Context, at *workspace, sheet client.Worksheet, o exportOptions) error {
	if _, ok := terminal(c.Stdout); ok {
		return refusef("An archive is nothing for a terminal: choose a file with -o, or a pipe.")
	}
	if c.asJSON {
		return refusef("--json needs a file: the archive goes to standard output")
	}
	written, err := c.export(ctx, termtext.Raw(c.Stdout), at, sheet, o)
	if err != nil {
		return err
	}
	c.warnIncomplete(written)
	return incomplete(written.LeftOut())
}

// export writes the archive.
func (c *cli) export(ctx context.Context, to io.Writer, at *workspace, sheet client.Worksheet, o exportOptions) (export.Summary, error) {
	archive, err := export.Prepare(at.Client, sheet, export.Options{Server: at.Address(), NoContents: o.noContents})
	if err != nil {
		return export.Summary{}, err
	}
	p := c.progress("Received", archive.Size())
	defer p.end()
	return archive.Write(ctx, to, p.add)
}

func (c *cli) exportDone(written export.Summary, final string) error {
	c.warnIncomplete(written)
	if !c.asJSON {
		return c.print(fmt.Sprintf("Exported %s(%s) with %d bundles, %s => %s",
			written.Worksheet.Name, written.Worksheet.UUID, len(written.Bundles), codalab.FormatSize(written.Bytes), final))
	}
	return c.printJSON(exported{written.Worksheet.UUID, final, len(written.Bundles), written.Bytes, leftOnes(written.LeftOut())})
}

func leftOnes(bundles []export.Bundle) []leftOne {
	list := []leftOne{}
	for _, b := range bundles {
		list = append(list, leftOne{b.UUID, b.LeftOut})
	}
	return list
}

// warnIncomplete names the bundles whose contents are not in an archive, and pipes and devices.
func (c *cli) warnIncomplete(written export.Summary) {
	for _, b := range written.LeftOut() {
		c.warn("The contents of %s are left out: %s.", exportedText(b), termtext.OneLine(b.LeftOut))
	}
	for _, b := range written.Bundles {
		if b.Note != "" {
			c.warn("Of %s, %s.", exportedText(b), termtext.OneLine(b.Note))
		}
	}
}

// exportedText is bundleText for a bundle of an archive.
func exportedText(b export.Bundle) string {
	return termtext.OneLine(bundleText(codalab.Bundle{UUID: b.UUID, Metadata: b.Metadata}))
}

// incomplete is the error of a command that has left bundles out.
func incomplete(bundles []export.Bundle) error {
	if len(bundles) == 0 {
		return nil
	}
	return refusef("%d of the bundles are not complete in the archive.", len(bundles))
}
