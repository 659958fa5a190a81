package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const duHelp = `Show what is large: your largest bundles, or the sizes of groups of them, and how
much of your disk quota is used.

  cl du                        your 20 largest bundles
  cl du --by worksheet         the worksheets, the largest first
  cl du --by age state=failed  how old your failed runs are
  cl du -w SHEET --by owner    whose bundles on a worksheet are large

Keywords choose bundles as in cl search. Without -w, --all and owner= only your
own count. A bundle that is on several worksheets counts in each of them, and once
in the total. cl rm --older removes what is no longer needed.`

// du is one call of `cl du`.
type du struct {
	*cli
	worksheet string
	by        string
	top       int
	all, csv  bool
}

// duCommand has no model in CodaLab's own cl.
func (c *cli) duCommand() *cobra.Command {
	d := &du{cli: c}
	cmd := &cobra.Command{
		Use: "du [<keyword>...]", Short: "Show which bundles are large", Long: duHelp,
		ValidArgsFunction: completeWords(searchWords()...),
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.Flags().StringVar(&d.by, "by", "", "add up by `what`: worksheet, age, owner or state")
	cmd.Flags().IntVarP(&d.top, "number", "n", 20, "show this many rows; 0 means all")
	cmd.Flags().BoolVarP(&d.all, "all", "a", false, "also bundles of others that you may read")
	cmd.Flags().BoolVar(&d.csv, "csv", false, "print comma-separated values, with sizes in bytes")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(groupings(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d.worksheet = *worksheet
		return d.run(cmd.Context(), args)
	}
	return cmd
}

// groupings are the values of --by.
func groupings() []string { return []string{"worksheet", "age", "owner", "state"} }

func (d *du) run(ctx context.Context, keywords []string) error {
	switch {
	case d.by != "" && !slices.Contains(groupings(), d.by):
		return refusef("--by: %q is none of %s%s", d.by, strings.Join(groupings(), ", "), argparse.DidYouMean("", argparse.Nearest(d.by, groupings())))
	case d.top < 0:
		return refusef("--number: %d is negative; 0 shows all", d.top)
	case d.csv && d.asJSON:
		return refusef("--csv and --json exclude each other")
	}
	for _, k := range keywords {
		if slices.ContainsFunc([]string{".limit=", ".offset=", ".count", ".last", ".format="}, func(w string) bool { return strings.HasPrefix(k, w) }) ||
			strings.HasSuffix(k, "=.sum") || strings.HasSuffix(k, "=.sort") || strings.HasSuffix(k, "=.sort-") {
			return refusef("cl du adds up and sorts by itself: leave %s out", k)
		}
	}
	at, err := d.workspace(d.worksheet)
	if err != nil {
		return err
	}
	if d.worksheet != "" {
		uuid, err := at.worksheetUUID(ctx)
		if err != nil {
			return err
		}
		keywords = append(slices.Clone(keywords), "host_worksheet="+uuid)
	}
	mine := d.worksheet == "" && !d.all && !slices.ContainsFunc(keywords, func(k string) bool {
		return k == ".mine" || k == ".shared" || strings.HasPrefix(k, "owner=")
	})
	if mine {
		keywords = append(slices.Clone(keywords), ".mine")
	}
	q := bundleQuery{keywords: keywords, keys: []string{"name", "created", "data_size"}}
	if d.by == "worksheet" {
		q.include = []string{client.IncludeWorksheets}
	}
	if len(q.keywords) == 0 {
		q.keywords = []string{""} // everything
	}
	bundles, err := at.everyBundle(ctx, q)
	if err != nil {
		return err
	}
	view := duView{Total: addUp(bundles), Groups: []extent{}, Largest: []largeBundle{}}
	user, err := at.User(ctx)
	if err != nil {
		return err
	}
	if user.Account != nil {
		view.Quota = &diskQuota{user.DiskUsed, user.DiskQuota}
	}
	if d.by == "" {
		view.Largest = largest(bundles, d.top)
	} else {
		view.Groups = groupExtents(bundles, d.by, d.Now())
	}
	return d.print(view)
}

// extent is a number of bundles with their size.
type extent struct {
	Key     string `json:"key,omitempty"`
	Bundles int    `json:"bundles"`
	Bytes   int64  `json:"bytes"`
}

type diskQuota struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
}

// largeBundle is a row of `cl du` without --by.
type largeBundle struct {
	UUID    string `json:"uuid"`
	Name    string `json:"name"`
	Owner   string `json:"owner"`
	State   string `json:"state"`
	Created int64  `json:"created"`
	Bytes   int64  `json:"bytes"`
}

// duView is the output of `cl du`, in JSON.
type duView struct {
	Total   extent        `json:"total"`
	Quota   *diskQuota    `json:"quota"`
	Groups  []extent      `json:"groups"`
	Largest []largeBundle `json:"largest"`
}

// addUp returns the extent of bundles.
func addUp(bundles []client.BundleInfo) (e extent) {
	for _, b := range bundles {
		e.Bundles++
		e.Bytes += b.Metadata.Int("data_size")
	}
	return e
}

// largest returns the n largest bundles, or all if n is 0; the older ones of equal sizes first.
func largest(bundles []client.BundleInfo, n int) []largeBundle {
	rows := make([]largeBundle, 0, len(bundles))
	for _, b := range bundles {
		rows = append(rows, largeBundle{
			b.UUID, b.Metadata.String("name"), ownerName(b), string(b.State), b.Metadata.Int("created"), b.Metadata.Int("data_size"),
		})
	}
	slices.SortStableFunc(rows, func(a, b largeBundle) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return first(rows, n)
}

// first returns the first n elements of a list, or all if n is 0.
func first[T any](list []T, n int) []T {
	if n > 0 && n < len(list) {
		return list[:n]
	}
	return list
}

func ownerName(b client.BundleInfo) string {
	if b.Owner == nil {
		return codalab.None
	}
	return b.Owner.UserName
}

// groupExtents adds bundles up by what they have in common: the largest group first, or ages in their order.
func groupExtents(bundles []client.BundleInfo, by string, now time.Time) []extent {
	groups := map[string]*extent{}
	for _, b := range bundles {
		for _, key := range groupsOf(b, by, now) {
			if groups[key] == nil {
				groups[key] = &extent{Key: key}
			}
			groups[key].Bundles++
			groups[key].Bytes += b.Metadata.Int("data_size")
		}
	}
	list := make([]extent, 0, len(groups))
	for _, g := range groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b extent) int {
		if by == "age" {
			return cmp.Compare(ageOrder(a.Key), ageOrder(b.Key))
		}
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Bundles, a.Bundles), cmp.Compare(a.Key, b.Key))
	})
	return list
}

// groupsOf returns the groups of a bundle: one, or each of its worksheets.
func groupsOf(b client.BundleInfo, by string, now time.Time) []string {
	switch by {
	case "owner":
		return []string{ownerName(b)}
	case "state":
		return []string{string(b.State)}
	case "age":
		age := now.Sub(b.Metadata.Time("created"))
		for _, a := range ages() {
			if age < a.below {
				return []string{a.name}
			}
		}
		return []string{oldest}
	}
	var names []string
	for _, w := range b.HostWorksheets {
		names = append(names, w.Name)
	}
	if names == nil {
		names = []string{"(on no worksheet)"}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ageGroup has the bundles whose age is below a time, and not in the group before it.
type ageGroup struct {
	below time.Duration
	name  string
}

const oldest = "a year and older"

func ages() []ageGroup {
	const day = 24 * time.Hour
	return []ageGroup{
		{day, "under a day"}, {7 * day, "a day to a week"}, {30 * day, "a week to 30 days"}, {90 * day, "30 to 90 days"}, {365 * day, "90 days to a year"},
	}
}

// ageOrder is the place of a group of ages, the youngest first.
func ageOrder(name string) int {
	for i, a := range ages() {
		if a.name == name {
			return i
		}
	}
	return len(ages())
}

func (d *du) print(v duView) error {
	switch {
	case d.asJSON:
		v.Groups = first(v.Groups, d.top)
		return d.printJSON(v)
	case d.csv:
		return d.printCSV(v)
	case v.Total.Bundles == 0:
		return d.printLines(append([]string{"No bundles match."}, quotaLine(v.Quota)...))
	}
	t := table{columns: []column{{name: "size", right: true}, {name: "share", right: true}, {name: "bundles", right: true}, {name: d.by}}}
	shown, rest := first(v.Groups, d.top), 0
	for _, g := range shown {
		t.rows = append(t.rows, []string{codalab.FormatSize(g.Bytes), share(g.Bytes, v.Total.Bytes), strconv.Itoa(g.Bundles), g.Key})
	}
	rest = len(v.Groups) - len(shown)
	what := "groups"
	if d.by == "" {
		t.columns = []column{{name: "size", right: true}, {name: "share", right: true}, {name: "uuid"}, {name: "name"}, {name: "owner"}, {name: "state"}, {name: "created"}}
		for _, b := range v.Largest {
			t.rows = append(t.rows, []string{
				codalab.FormatSize(b.Bytes), share(b.Bytes, v.Total.Bytes), shortUUID(b.UUID), b.Name, b.Owner, b.State, codalab.FormatMetadata("created", float64(b.Created), time.Local),
			})
		}
		rest, what = v.Total.Bundles-len(v.Largest), "bundles"
	}
	if err := t.print(d.Stdout); err != nil {
		return err
	}
	line := fmt.Sprintf("Total: %s in %s.", codalab.FormatSize(v.Total.Bytes), bundleCount(v.Total.Bundles))
	if rest > 0 {
		line += fmt.Sprintf(" %d more %s are not shown (-n 0 shows all).", rest, what)
	}
	return d.printLines(append([]string{line}, quotaLine(v.Quota)...))
}

// share is a part of a whole in percent.
func share(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

// quotaLine compares the use of a quota with the quota; it has no line if the server does not tell it.
func quotaLine(q *diskQuota) []string {
	if q == nil {
		return nil
	}
	left := fmt.Sprintf("%s are left", codalab.FormatSize(max(q.Limit-q.Used, 0)))
	if q.Used >= q.Limit {
		left = "nothing is left"
	}
	return []string{fmt.Sprintf("You use %s of your disk quota of %s: %s.", codalab.FormatSize(q.Used), codalab.FormatSize(q.Limit), left)}
}

// printCSV prints the rows with sizes in bytes and times in RFC 3339.
func (d *du) printCSV(v duView) error {
	rows := [][]string{{d.by, "bundles", "bytes"}}
	for _, g := range first(v.Groups, d.top) {
		rows = append(rows, []string{g.Key, strconv.Itoa(g.Bundles), strconv.FormatInt(g.Bytes, 10)})
	}
	if d.by == "" {
		rows = [][]string{{"uuid", "name", "owner", "state", "created", "bytes"}}
		for _, b := range v.Largest {
			rows = append(rows, []string{b.UUID, b.Name, b.Owner, b.State, time.Unix(b.Created, 0).UTC().Format(time.RFC3339), strconv.FormatInt(b.Bytes, 10)})
		}
	}
	return d.writeCSV(rows)
}
