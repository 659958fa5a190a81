package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// printCommand is bundle_cli.py: do_print_command.
func (c *cli) printCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "print [<worksheet>]", Aliases: []string{"p"}, Short: "Print a worksheet as its page shows it",
		Long: "Print a worksheet with its texts, tables and files, as its page shows it. Images and\ngraphs are only named.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.completeWorksheets,
	}
	raw := cmd.Flags().BoolP("raw", "r", false, "print the lines that cl wedit edits")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, uuid, err := c.openWorksheet(cmd.Context(), strings.Join(args, ""))
		if err != nil {
			return err
		}
		w, err := at.WorksheetItems(cmd.Context(), uuid)
		switch {
		case err != nil:
			return err
		case c.asJSON:
			return c.printJSON(viewItems(w))
		case *raw:
			return printRaw(contentsTo(c.Stdout), client.ItemLines(w.Items))
		}
		return c.printWorksheet(cmd.Context(), at, w)
	}
	return cmd
}

// worksheetItems is a worksheet with its items, in JSON.
type worksheetItems struct {
	worksheetRow
	Items []itemView `json:"items"`
	// Lines are the items as people edit them.
	Lines []string `json:"lines"`
}

// itemView is an item of a worksheet, in JSON.
type itemView struct {
	Type      string                 `json:"type"`
	Value     string                 `json:"value,omitempty"`
	Bundle    *bundleView            `json:"bundle,omitempty"`
	Worksheet *codalab.WorksheetName `json:"worksheet,omitempty"`
}

func viewItems(w client.Worksheet) worksheetItems {
	v := worksheetItems{worksheetRow: viewWorksheet(w), Items: []itemView{}, Lines: client.ItemLines(w.Items)}
	for _, item := range w.Items {
		one := itemView{Type: item.Type, Value: item.Value}
		if item.Bundle != nil {
			b := viewBundle(*item.Bundle)
			one.Bundle = &b
		}
		if item.Worksheet != nil {
			one.Worksheet = &item.Worksheet.WorksheetName
		}
		v.Items = append(v.Items, one)
	}
	return v
}

// printRaw prints the lines of a worksheet as they are, for a file that cl wedit reads.
func printRaw(to io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := io.WriteString(to, line+"\n"); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
	}
	return nil
}

func (c *cli) printWorksheet(ctx context.Context, at *workspace, w client.Worksheet) error {
	if err := c.print(worksheetHeading(at.Address(), w)); err != nil {
		return err
	}
	page, err := at.InterpretWorksheet(ctx, w.UUID)
	if err != nil {
		return err
	}
	for _, b := range page.Blocks {
		if err := errors.Join(c.print(), c.printBlock(ctx, at, b)); err != nil {
			return err
		}
	}
	return nil
}

// printBlock prints a block of a worksheet (bundle_cli.py: display_blocks).
func (c *cli) printBlock(ctx context.Context, at *workspace, b client.Block) error {
	switch b.Mode {
	case "markup_block":
		return c.print(b.Text)
	case "contents_block":
		return c.printFileBlock(ctx, at, b)
	case "record_block", "table_block":
		return c.printTableBlock(ctx, at, b)
	case "image_block":
		return c.print("[Image]")
	case "graph_block":
		return c.print("[Graph]")
	case "subworksheets_block":
		for _, w := range b.Worksheets {
			if err := c.print(termtext.OneLine("[Worksheet " + worksheetURL(at.Address(), w) + "]")); err != nil {
				return err
			}
		}
		return nil
	case "placeholder_block":
		return c.print("[Placeholder] ", b.Directive)
	case "schema_block":
		return c.print("[SchemaBlock]")
	}
	return c.print("[", b.Mode, "]")
}

func (c *cli) printFileBlock(ctx context.Context, at *workspace, b client.Block) error {
	if len(b.BundlesSpec.Bundles) == 0 {
		return c.print(codalab.None)
	}
	target := codalab.Target{BundleUUID: b.BundlesSpec.Bundles[0].UUID, Subpath: strings.Trim(b.Path, "/")}
	lines := codalab.Metadata{"n": b.MaxLines}.Int("n")
	_, err := c.printTarget(ctx, at, target, catOptions{head: int(min(lines, math.MaxInt32)), to: c.Stdout})
	var call *codalab.Error
	switch {
	case isNotFound(err):
		return c.print(codalab.None)
	case errors.As(err, &call) && call.Status == 400:
		return c.print("ERROR: ", call.Message)
	}
	return err
}

func (c *cli) printTableBlock(ctx context.Context, at *workspace, b client.Block) error {
	contents, err := at.TableContents(ctx, b.Rows)
	if err != nil {
		return err
	}
	t := table{indent: "  ", headless: b.Mode == "record_block"}
	for _, name := range b.Header {
		t.columns = append(t.columns, column{name: name})
	}
	for _, cells := range contents {
		row := make([]string, 0, len(b.Header))
		for _, name := range b.Header {
			text := ""
			if v := cells[name]; v != nil {
				text = codalab.PythonStr(v)
			}
			row = append(row, text)
		}
		t.rows = append(t.rows, row)
	}
	return t.print(c.Stdout)
}

const weditHelp = `Change a worksheet's name, title, tags, owner or contents.

  wedit -n <name> -t <title> -T <tag>... -o <user>
  wedit -f <file>   replace the contents by the lines of a file; - is standard input
  wedit             edit the contents in $EDITOR

cl print -r prints the lines. A line [text]{<bundle>} shows a bundle and
[text]{{<worksheet>}} a worksheet; % begins a directive and // a comment.`

// weditCommand is bundle_cli.py: do_wedit_command.
func (c *cli) weditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wedit [<worksheet>]", Aliases: []string{"we"}, Short: "Change a worksheet", Long: weditHelp,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.completeWorksheets,
	}
	read := c.worksheetEdit(cmd)
	owner := cmd.Flags().StringP("owner-spec", "o", "", "new owner, who has to accept it (cl offers)")
	file := cmd.Flags().StringP("file", "f", "", "replace the contents by this file's lines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		edit, err := read()
		if err != nil {
			return err
		}
		given := cmd.Flags().Changed
		changes := edit.Name != nil || edit.Title != nil || edit.Tags != nil || edit.Frozen != nil || edit.IsAnonymous != nil || given("owner-spec")
		text := ""
		switch {
		case changes && given("file"):
			return refusef("--file changes the contents: name, title and so on need a call of their own")
		case given("file"):
			if text, err = c.readFile(cmd.Context(), *file); err != nil {
				return err
			}
		}
		at, w, err := c.worksheet(cmd.Context(), strings.Join(args, ""))
		switch {
		case err != nil:
			return err
		case given("file"):
			return c.setLines(cmd.Context(), at, w, text)
		case !changes:
			return c.editLines(cmd.Context(), at, w)
		}
		change := client.WorksheetChange{UUID: w.UUID, WorksheetEdit: edit}
		if given("owner-spec") {
			user, err := at.UserByID(cmd.Context(), *owner)
			if err != nil {
				return err
			}
			change.Owner = user.ID
		}
		if err := at.UpdateWorksheet(cmd.Context(), change); err != nil {
			return err
		}
		if change.Owner != "" {
			c.tellOfferedWorksheet(cmd.Context(), at, w)
		}
		return c.printResult(named{w.UUID}, "Saved worksheet metadata for %s(%s).", w.Name, w.UUID)
	}
	return cmd
}

// worksheetEdit adds the flags for a worksheet's attributes, and returns a function that reads them.
func (c *cli) worksheetEdit(cmd *cobra.Command) func() (codalab.WorksheetEdit, error) {
	name := cmd.Flags().StringP("name", "n", "", "new name")
	title := cmd.Flags().StringP("title", "t", "", "new title")
	tags := argparse.WordsFlag(cmd.Flags(), "tags", "T", "new tags; none removes them all")
	object := c.changeFlags(cmd)
	return func() (edit codalab.WorksheetEdit, err error) {
		if edit.Frozen, edit.IsAnonymous, err = object(); err != nil {
			return edit, err
		}
		given := cmd.Flags().Changed
		if given("name") {
			edit.Name = name
			if err := checkName(*name); err != nil {
				return edit, err
			}
		}
		if given("title") {
			edit.Title = title
		}
		if given("tags") {
			list := append([]string{}, tags.List...)
			edit.Tags = &list
		}
		return edit, nil
	}
}

// editLines lets the user edit a worksheet's items as lines.
func (c *cli) editLines(ctx context.Context, at *workspace, w client.Worksheet) error {
	before, tag, err := at.lines(ctx, w.UUID)
	if err != nil {
		return err
	}
	text, err := c.editText(ctx, ".md", before)
	switch {
	case err != nil:
		return err
	case text == before:
		return refusef("No change made; aborting")
	}
	if tag != "" {
		err = at.ReplaceWorksheetLines(ctx, w.UUID, strings.Join(linesOf(text), "\n"), tag)
		if no, ok := errors.AsType[*codalab.Error](err); ok && no.Status == http.StatusPreconditionFailed {
			return changedMeanwhile()
		}
		if err != nil {
			return err
		}
		return c.savedLines(w)
	}
	switch now, _, err := at.lines(ctx, w.UUID); {
	case err != nil:
		return err
	case now != before:
		return changedMeanwhile()
	}
	return c.setLines(ctx, at, w, text)
}

func changedMeanwhile() error {
	return refusef("The worksheet has changed since it was read; nothing was saved. cl wedit -f replaces it by a file")
}

// lines are a worksheet's items as people edit them, with the tag by which the server knows a later change. CodaLab's own server
// has none.
func (w *workspace) lines(ctx context.Context, uuid string) (text, tag string, err error) {
	text, tag, err = w.WorksheetLines(ctx, uuid)
	if !errors.Is(err, errors.ErrUnsupported) {
		if text != "" {
			text += "\n"
		}
		return text, tag, err
	}
	sheet, err := w.WorksheetItems(ctx, uuid)
	if err != nil {
		return "", "", err
	}
	var out strings.Builder
	for _, line := range client.ItemLines(sheet.Items) {
		out.WriteString(line + "\n")
	}
	return out.String(), "", nil
}

// linesOf are the lines of a text. They keep blanks at their ends: two of them break a line of markup.
func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	return lines
}

// setLines replaces a worksheet's items by the lines of a text.
func (c *cli) setLines(ctx context.Context, at *workspace, w client.Worksheet, text string) error {
	if err := at.SetWorksheetLines(ctx, w.UUID, linesOf(text)); err != nil {
		return err
	}
	return c.savedLines(w)
}

func (c *cli) savedLines(w client.Worksheet) error {
	return c.printResult(named{w.UUID}, "Saved worksheet items for %s(%s).", w.Name, w.UUID)
}
