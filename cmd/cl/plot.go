package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/rows"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const plotHelp = `Draw numbers in files of rows, .jsonl, .ndjson and .csv, on the terminal.

  cl plot train /log.jsonl:loss        over the number of the row
  cl plot train /log.jsonl:loss -x step
                                       over another number of the row
  cl plot a b /log.csv:loss /log.csv:val_loss
                                       several series
  cl plot <sweep> /log.jsonl:loss      all runs of a sweep
  cl plot .mine state=running /log.jsonl:loss --watch
                                       what cl search would find, drawn anew
                                       until all of it has ended or Ctrl-C
  cl plot /log.jsonl:loss              the bundles of the worksheet
  cl plot $(cl best <sweep> /log.jsonl:-1:loss --top 5 -u) /log.jsonl:loss
                                       the best five

A row without the number is passed over; a value that is no finite number, such
as NaN, is a gap in the line. Of many points in a column those that stand out are
drawn. --csv and --json print the points: of more than 4,096 of a series, the
lowest and the highest of each section. A terminal gets Braille characters if its
locale has UTF-8, and a pipe ASCII; --style box and --style ascii suit other fonts.`

// plotOptions are the flags of cl plot.
type plotOptions struct {
	worksheet       string
	x, style        string
	log, watch, csv bool
	width, height   int
}

// plotCommand has no counterpart in CodaLab's own cl.
func (c *cli) plotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "plot [<bundle>|<sweep>|<keyword>]... /<path>:<key>...", Short: "Draw the numbers in log files of runs", Long: plotHelp,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeBundles,
	}
	var o plotOptions
	worksheet := c.worksheetFlag(cmd)
	c.colourFlag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.x, "x", "x", "", "the `key` of the number over which to draw, such as step (default: the number of the row)")
	flags.BoolVar(&o.log, "log", false, "a logarithmic axis")
	flags.BoolVar(&o.watch, "watch", false, "draw anew on the terminal until all runs have ended")
	flags.BoolVar(&o.csv, "csv", false, "print the points as comma-separated values")
	flags.StringVar(&o.style, "style", "", "the characters, `KIND`: braille, box or ascii (default: what the terminal has; ascii for a pipe)")
	_ = cmd.RegisterFlagCompletionFunc("style", completeWords(plotStyles()...)) // the flag is there
	flags.IntVar(&o.width, "width", 0, "the number of columns (default: those of the terminal, or 80)")
	flags.IntVar(&o.height, "height", 0, "the number of lines (default: those of the terminal up to 24, or 20)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.worksheet = *worksheet
		o.x = strings.TrimPrefix(o.x, ":")
		specs, values, err := o.read(c, args)
		if err != nil {
			return err
		}
		return c.plot(cmd.Context(), o, specs, values)
	}
	return cmd
}

// plotValue is a number in the rows of a file.
type plotValue struct {
	// word is as the user has typed it.
	word      string
	path, key string
}

// read splits the arguments into bundles and values, and refuses what contradicts.
func (o plotOptions) read(c *cli, args []string) (specs []string, values []plotValue, err error) {
	for _, word := range args {
		if condition, ok := codalab.ParseComparison(word); !isFile(word) || ok && condition.Op != "" {
			specs = append(specs, word)
			continue
		}
		path, key, _ := strings.Cut(word, ":")
		v := plotValue{word, strings.TrimPrefix(path, "/"), key}
		switch {
		case rows.KindOf(path) == 0 || key == "":
			return nil, nil, refusef("%s is no number in a file of rows, such as /log.jsonl:loss or /log.csv:loss", word)
		case strings.HasPrefix(key, "-1:"):
			return nil, nil, refusef("%s is one number of each bundle, which cl ls and cl best show; cl plot draws %s:%s", word, path, key[3:])
		case slices.Contains(values, v):
			continue
		}
		values = append(values, v)
	}
	switch {
	case len(values) == 0:
		return nil, nil, refusef("cl plot needs a number in a file of rows, such as /log.jsonl:loss")
	case o.csv && c.asJSON:
		return nil, nil, refusef("--csv and --json are two forms; choose one")
	case o.watch && (o.csv || c.asJSON):
		return nil, nil, refusef("--watch draws on a terminal; print the points without it")
	case o.style != "" && !slices.Contains(plotStyles(), o.style):
		return nil, nil, refusef("--style: %q is none of %s%s", o.style, strings.Join(plotStyles(), ", "), argparse.DidYouMean("", argparse.Nearest(o.style, plotStyles())))
	case o.width < 0 || o.height < 0:
		return nil, nil, refusef("--width and --height count from 1")
	}
	return specs, values, nil
}

func (c *cli) plot(ctx context.Context, o plotOptions, specs []string, values []plotValue) error {
	at, bundles, err := c.candidates(ctx, o.worksheet, specs)
	if err != nil {
		return err
	}
	p := newPlotter(c, at, o, values)
	if err := p.add(bundles); err != nil {
		return err
	}
	if o.watch {
		return p.watch(ctx)
	}
	if err := p.look(ctx); err != nil {
		return err
	}
	return p.print()
}

// print prints the points or the drawing, after the notes.
func (p *plotter) print() error {
	p.note()
	if err := p.check(); err != nil {
		return err
	}
	switch {
	case p.asJSON:
		return p.printPoints()
	case p.o.csv:
		return p.printTable()
	}
	return p.draw()
}

// check refuses a drawing of nothing, and one of more series than one can tell apart.
func (p *plotter) check() error {
	drawn := p.drawn()
	switch {
	case len(drawn) == 0:
		hint := ""
		for _, v := range p.values {
			if near := argparse.Nearest(v.key, p.keys[v.path]); near != "" && near != v.key {
				hint = argparse.DidYouMean("/"+v.path+":", near)
			}
		}
		return refusef("There is nothing to draw in %s%s", termtext.Count(int64(len(p.bundles)), "bundle"), hint)
	case len(drawn) > plotMost && !p.asJSON && !p.o.csv:
		return refusef("These are %d series, and a drawing has %d at most: cl plot $(cl best … /%s:-1:%s --top 10 -u) … draws the best", len(drawn), plotMost, drawn[0].value.path, drawn[0].value.key)
	}
	return nil
}

// note prints a sentence for each reason why something is not in the drawing.
func (p *plotter) note() {
	for _, n := range p.notes() {
		p.warn("%s", n)
	}
}

func (p *plotter) notes() (notes []string) {
	add := func(n int, format string, args ...any) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	var missing, away, lines, noNumber, noX int
	wrong, empty := "", 0
	for _, f := range p.files {
		switch {
		case f.missing:
			missing++
		case f.away:
			away++
		}
		lines += f.rows.Skipped
		noX += f.noX
		for _, s := range f.series {
			if noNumber += s.wrong; wrong == "" {
				wrong = s.first
			}
			if !f.missing && !f.away && !s.points.HasNumber() {
				empty++
			}
		}
	}
	add(missing, "Files that are not there yet, or cannot be read: %d of %d.", missing, len(p.files))
	add(away, "Files on workers that do not answer: %d of %d.", away, len(p.files))
	add(empty, "Series without a number in their files: %d of %d.", empty, len(p.bundles)*len(p.values))
	add(lines, "Lines that are no rows: %d; they are longer than 64 KiB, or no JSON objects, or have not as many cells as the first line.", lines)
	add(noNumber, "Values that are no finite numbers: %d; they are gaps, and the first is %q.", noNumber, wrong)
	add(noX, "Rows without a finite number at %s: %d.", p.o.x, noX)
	return notes
}

// ended reports whether all bundles have ended. One that the user may not read has no state.
func (p *plotter) ended() bool {
	return !slices.ContainsFunc(p.bundles, func(b client.BundleInfo) bool { return !b.State.Final() && b.Type != codalab.TypePrivate })
}
