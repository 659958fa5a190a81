package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const bestHelp = `Print the ready bundles with the best value in a result file, uuid first.

  cl best <sweep> /stats.json:acc          the run of a sweep with the highest acc
  cl best <bundle>... /log.jsonl:-1:loss   by the last line, and the lowest: names
                                           such as loss and error mean --min
  cl best .mine name=train% /stats.json:acc --top 3
                                           among what cl search would find
  cl best /stats.json:acc                  among the bundles of the worksheet
  cl mimic $(cl best <sweep> /stats.json:acc -u)
                                           for scripts: only the uuid

Values that are no finite numbers, such as NaN, never win; nor do bundles that
failed, were killed or have not ended, unless --all is given. Of equal values the older bundle
comes first. cl help fields tells how values are named.`

// bestOptions are the flags of cl best.
type bestOptions struct {
	*listing
	worksheet     string
	min, max, all bool
	top           int
}

func (c *cli) bestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "best [<bundle>|<sweep>|<keyword>]... /<path>:<key>", Short: "Find the run with the best value", Long: bestHelp,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeBundles,
	}
	o := bestOptions{listing: &listing{cmd: cmd}}
	worksheet := c.worksheetFlag(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.min, "min", false, "the lowest value is the best one")
	flags.BoolVar(&o.max, "max", false, "the highest value is the best one")
	flags.BoolVar(&o.all, "all", false, "also bundles that have failed, were killed or have not ended")
	flags.IntVar(&o.top, "top", 1, "print the best `N`")
	flags.BoolVarP(&o.uuidOnly, "uuid-only", "u", false, "print only uuids")
	csvFlag(cmd, &o.csv)
	flags.StringVarP(&o.fields, "field", "f", "", "print these comma-separated fields (default uuid,name, the value, state)")
	_ = cmd.RegisterFlagCompletionFunc("field", completeFields) // the flag is there
	cmd.MarkFlagsMutuallyExclusive("min", "max")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.worksheet = *worksheet
		specs, value := args[:len(args)-1], args[len(args)-1]
		if !isFile(value) || !strings.Contains(value, ":") {
			return refusef("the last word must be a value in a file, such as /stats.json:acc, not %q", value)
		}
		if o.top < 1 {
			return refusef("--top must be at least 1")
		}
		if o.fields == "" {
			o.fields = "uuid,name," + value + ",state"
		}
		fields, err := o.read(c)
		if err != nil {
			return err
		}
		return c.best(cmd.Context(), o, specs, value, fields)
	}
	return cmd
}

// lowest reports whether the lowest value is the best one.
func (o bestOptions) lowest(value string) bool {
	return o.min || !o.max && codalab.LowestIsBest(value)
}

func (c *cli) best(ctx context.Context, o bestOptions, specs []string, value string, fields []string) error {
	at, all, err := c.candidates(ctx, o.worksheet, specs)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return refusef("There is no bundle to choose from")
	}
	ended := slices.DeleteFunc(slices.Clone(all), func(b client.BundleInfo) bool { return !o.all && b.State != codalab.StateReady })
	values, err := at.fileValues(ctx, ended, []string{value})
	if err != nil {
		return err
	}
	of := func(b client.BundleInfo) any { return values[fileField{b.UUID, value}] }
	found := slices.DeleteFunc(slices.Clone(ended), func(b client.BundleInfo) bool {
		_, number, _ := codalab.ScalarValue(of(b))
		return number == nil
	})
	if len(found) == 0 {
		return refusef("None of %s has a number at %s: %s", termtext.Count(int64(len(all)), "bundle"), value, uncounted(len(all)-len(ended), ended, of))
	}
	lowest := o.lowest(value)
	sortBest(found, lowest, of)
	c.noteBest(found, lowest, o, of)
	if left := len(all) - len(found); left > 0 {
		c.warn("%d of %d bundles are left out: %s.", left, len(all), uncounted(len(all)-len(ended), ended, of))
	}
	shown := found[:min(o.top, len(found))]
	if c.asJSON && !o.uuidOnly {
		read, err := at.fileValues(ctx, shown, fields)
		if err != nil {
			return err
		}
		return c.printJSON(viewFields(shown, fields, read))
	}
	if o.uuidOnly || o.csv {
		return c.printChosen(ctx, at, shown, o.listing, fields)
	}
	t, err := at.table(ctx, shown, fields)
	if err != nil {
		return err
	}
	for i, f := range fields { // whole uuids, for scripts
		for n := range shown {
			if f == "uuid" {
				t.rows[n][i] = shown[n].UUID
			}
		}
	}
	return t.print(c.Stdout)
}

// uncounted names the bundles that do not count: the number of those that are not ready, and those that have ended
// without a number.
func uncounted(unready int, ended []client.BundleInfo, of func(client.BundleInfo) any) string {
	missing, wrong, first := 0, 0, ""
	for _, b := range ended {
		text, number, ok := codalab.ScalarValue(of(b))
		switch {
		case of(b) == nil:
			missing++
		case number == nil:
			if wrong++; wrong == 1 && ok {
				first = fmt.Sprintf(" (%.40q)", text)
			}
		}
	}
	var reasons []string
	add := func(n int, text string) {
		if n > 0 {
			reasons = append(reasons, fmt.Sprint(n, " ", text))
		}
	}
	add(unready, "not ready")
	add(missing, "without a value there")
	add(wrong, "with one that is no finite number"+first)
	return strings.Join(reasons, ", ")
}

// candidates returns the bundles and the runs of sweeps that specs name, or those that keywords find; of no specs, those of
// the worksheet.
func (c *cli) candidates(ctx context.Context, worksheet string, specs []string) (*workspace, []client.BundleInfo, error) {
	switch {
	case len(specs) == 0:
		sheet, at, err := c.worksheetBundles(ctx, worksheet)
		return at, distinct(sheet.Bundles), err
	case !slices.ContainsFunc(specs, isKeyword):
		at, uuids, err := c.bundlesAndSweeps(ctx, worksheet, specs, anyRun)
		if err != nil {
			return nil, nil, err
		}
		found, err := at.Bundles(ctx, "", uuids)
		return at, distinct(found), err
	case !slices.ContainsFunc(specs, func(word string) bool { return !isKeyword(word) }):
		at, uuid, err := c.openWorksheet(ctx, worksheet)
		if err != nil {
			return nil, nil, err
		}
		found, number, err := at.find(ctx, uuid, everything(specs))
		if err == nil && number != nil {
			err = refusef("Bundles are needed here, and these keywords ask for a number")
		}
		return at, found, err
	}
	return nil, nil, refusef("give bundles and sweeps, or keywords; name=TEXT is a keyword for a name")
}

// distinct returns bundles without repetitions.
func distinct(bundles []client.BundleInfo) []client.BundleInfo {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(bundles), func(b client.BundleInfo) bool {
		again := seen[b.UUID]
		seen[b.UUID] = true
		return again
	})
}

// sortBest sorts bundles with numbers, the best one first, and the older one of two with equal numbers.
func sortBest(bundles []client.BundleInfo, lowest bool, of func(client.BundleInfo) any) {
	slices.SortStableFunc(bundles, func(a, b client.BundleInfo) int {
		_, x, _ := codalab.ScalarValue(of(a))
		_, y, _ := codalab.ScalarValue(of(b))
		n := cmp.Compare(*x, *y)
		if !lowest {
			n = -n
		}
		if n == 0 {
			n = cmp.Compare(a.Metadata.Float("created"), b.Metadata.Float("created")) // whole seconds; else their order stays
		}
		return n
	})
}

// noteBest names the order, and a tie at the end of the shown bundles.
func (c *cli) noteBest(found []client.BundleInfo, lowest bool, o bestOptions, of func(client.BundleInfo) any) {
	word, other := "highest", "--min is for the lowest"
	if lowest {
		word, other = "lowest", "--max is for the highest"
	}
	if !o.min && !o.max {
		c.warn("The %s of %d values; %s.", word, len(found), other)
	}
	if o.top >= len(found) {
		return
	}
	_, last, _ := codalab.ScalarValue(of(found[o.top-1]))
	_, next, _ := codalab.ScalarValue(of(found[o.top]))
	if *last == *next {
		c.warn("A later bundle has the same value; --top %d shows it, too.", o.top+1)
	}
}
