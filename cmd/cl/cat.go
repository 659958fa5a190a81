package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// catCommand is bundle_cli.py: do_cat_command.
func (c *cli) catCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cat <bundle>[/<path>]",
		Short: "Print a file of a bundle, or list a directory",
		Long: "Print a file of a bundle, also of one that still runs. A directory is listed.\n" +
			"A run's output is in <bundle>/stdout and <bundle>/stderr.\n\n" +
			"On a terminal, characters that would steer it are shown as \\u001b and the like; in a\n" +
			"pipe or a file the contents are as they are: cl cat <bundle>/stdout | less -R.",
		Args: cobra.ExactArgs(1),
	}
	var o catOptions
	worksheet := c.worksheetFlag(cmd)
	cmd.Flags().IntVar(&o.head, "head", 0, "print only the first `NUM` lines")
	cmd.Flags().IntVarP(&o.tail, "tail", "t", 0, "print only the last `NUM` lines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, target, err := c.target(cmd.Context(), *worksheet, args[0])
		if err != nil {
			return err
		}
		if c.asJSON {
			return c.printContentsJSON(cmd.Context(), at, target, o)
		}
		o.to = contentsTo(c.Stdout)
		_, err = c.printTarget(cmd.Context(), at, target, o)
		return err
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

// contentsView is a target in JSON: a file with its text, or a directory with its entries.
type contentsView struct {
	codalab.TargetInfo
	Text *string `json:"text,omitempty"`
}

func (c *cli) printContentsJSON(ctx context.Context, at *workspace, target codalab.Target, o catOptions) error {
	var text strings.Builder
	o.to, o.entries = &text, func([]codalab.TargetInfo) error { return nil }
	info, err := c.printTarget(ctx, at, target, o)
	if err != nil {
		return err
	}
	v := contentsView{TargetInfo: info}
	if info.Type == codalab.TargetFile {
		contents := text.String()
		if !utf8.ValidString(contents) {
			return refusef("%s is not text, as JSON needs it; without --json cl cat prints it as it is", target)
		}
		v.Text = &contents
	}
	return c.printJSON(v)
}

// catOptions selects the lines of a file that are printed, and their destination.
type catOptions struct {
	head, tail int       // the numbers of lines; with 0 and 0 all of it
	to         io.Writer // receives the contents
	// entries prints those of a directory; nil prints a table.
	entries func([]codalab.TargetInfo) error
}

// printTarget prints a target's contents (bundle_cli.py: print_target_info).
func (c *cli) printTarget(ctx context.Context, at *workspace, target codalab.Target, o catOptions) (codalab.TargetInfo, error) {
	info, err := at.ContentsInfo(ctx, target, 1)
	if err != nil {
		return info, err
	}
	if info.Resolved != nil {
		target = *info.Resolved
	}
	switch info.Type {
	case codalab.TargetDirectory:
		if o.entries != nil {
			return info, o.entries(info.Contents)
		}
		return info, c.printEntries(info.Contents)
	case codalab.TargetLink:
		return info, c.printUnlessJSON(" -> %s", termtext.OneLine(info.Link))
	case codalab.TargetFile:
	}
	var contents *client.Contents
	if o.head > 0 || o.tail > 0 {
		contents, err = at.OpenLines(ctx, target, o.head, o.tail)
	} else {
		contents, err = at.OpenContents(ctx, target, nil)
	}
	if err != nil {
		return info, err
	}
	_, err = io.Copy(o.to, contents)
	if err = errors.Join(err, contents.Close()); err != nil {
		return info, fmt.Errorf("print %s: %w", target, err)
	}
	return info, nil
}

func (c *cli) printEntries(entries []codalab.TargetInfo) error {
	rows := make([][]string, 0, len(entries))
	for _, e := range entries {
		name, size := e.Name, string(e.Type)
		switch e.Type {
		case codalab.TargetFile:
			size = codalab.FormatSize(e.Size)
		case codalab.TargetDirectory:
			size = "dir"
		case codalab.TargetLink:
			name += " -> " + e.Link
		}
		rows = append(rows, []string{name, fmt.Sprintf("0o%o", e.Perm), size})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return printTable(c.Stdout, []column{{name: "name"}, {name: "perm"}, {name: "size", right: true}}, rows)
}
