package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// rmChoice chooses bundles for `cl rm` by what they are, in place of names: the user's own ones.
type rmChoice struct {
	older  string
	states []string
	yes    bool
}

func (o *rmChoice) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.older, "older", "", "all of your bundles that were made before this `time`: an age such as 30d, or a date")
	cmd.Flags().StringSliceVar(&o.states, "state", nil, "all of your bundles in these `states`, such as failed,killed")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "with --older and --state: do not ask")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(removableStates(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// given reports whether the user chooses by --older or --state.
func (o *rmChoice) given() bool { return o.older != "" || len(o.states) > 0 }

// removableStates are the states of bundles that a server removes: no worker has them.
func removableStates() []string {
	return []string{"failed", "killed", "ready", "created", "staged", "uploading", "worker_offline"}
}

// check refuses a command line that contradicts itself, and returns the time before which bundles must have been made; zero
// without --older.
func (c *cli) checkChoice(o rmChoice, specs []string, d client.DeleteOptions) (before time.Time, err error) {
	switch {
	case !o.given():
		if o.yes {
			return before, refusef("--yes goes with --older and --state: cl rm asks nothing about bundles that you name")
		}
		return before, nil
	case len(specs) > 0:
		return before, refusef("name bundles, or choose them by --older and --state, not both")
	case d.Recursive:
		return before, refusef("--recursive goes with the names of bundles: what depends on a chosen bundle stays, with the bundle")
	}
	for _, s := range o.states {
		if !slices.Contains(removableStates(), s) {
			hint := argparse.DidYouMean("", argparse.Nearest(s, removableStates()))
			if codalab.State(s).OnWorker() || s == string(codalab.StateMaking) {
				hint = ": cl kill ends runs first"
			}
			return before, refusef("--state: no bundle that can be removed is %q%s", s, hint)
		}
	}
	if o.older == "" {
		return before, nil
	}
	return readAge("--older", o.older, c.Now())
}

const (
	// triedAtOnce is the number of bundles about which one request asks, removedAtOnce that of one removal: an interrupted
	// cl rm leaves at most one of these unfinished, at the server.
	triedAtOnce   = 500
	removedAtOnce = 100
	// namedDependents is the number of dependents that a sentence names.
	namedDependents = 3
)

// removal is one call of `cl rm` with choices.
type removal struct {
	*cli
	at      *workspace
	options client.DeleteOptions
	// doomed are the bundles that will be removed, and kept the chosen ones that stay.
	doomed map[string]bool
	kept   []keptBundle
}

// keptBundle is a chosen bundle that stays, with the reason.
type keptBundle struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// removedView is the output of `cl rm` with choices, in JSON.
type removedView struct {
	DryRun  bool         `json:"dry_run"`
	Bundles int          `json:"bundles"`
	Bytes   int64        `json:"bytes"`
	UUIDs   []string     `json:"uuids"`
	Kept    []keptBundle `json:"kept"`
}

// removeChosen shows the user's bundles that match a choice, asks, and removes those that it has shown.
func (c *cli) removeChosen(ctx context.Context, worksheet string, o rmChoice, before time.Time, d client.DeleteOptions) error {
	if _, asks := c.canAsk(); !d.DryRun && !o.yes && (!asks || c.asJSON) {
		return refusef("cl rm shows what it chooses, and asks on a terminal: elsewhere add --dry-run to see it, then --yes")
	}
	at, err := c.workspace(worksheet)
	if err != nil {
		return err
	}
	chosen, err := at.choose(ctx, worksheet, o, before)
	if err != nil {
		return err
	}
	r := &removal{cli: c, at: at, options: d, doomed: map[string]bool{}}
	if chosen, err = r.removable(ctx, chosen); err != nil {
		return err
	}
	if !c.asJSON {
		if err := r.show(ctx, chosen); err != nil {
			return err
		}
	}
	view := removedView{DryRun: d.DryRun, Bundles: len(chosen), Bytes: addUp(chosen).Bytes, UUIDs: uuidsOf(chosen), Kept: append([]keptBundle{}, r.kept...)}
	switch {
	case d.DryRun || len(chosen) == 0:
		if c.asJSON {
			return c.printJSON(view)
		}
		return nil
	case !o.yes:
		yes, err := c.ask(ctx, fmt.Sprintf("Remove %s (%s) for ever?", bundleCount(view.Bundles), codalab.FormatSize(view.Bytes)))
		if err != nil {
			return err
		}
		if !yes {
			return c.print("Nothing is removed.")
		}
	}
	if err := r.remove(ctx, view.UUIDs); err != nil {
		return err
	}
	return c.printResult(view, "Removed %s, %s.", bundleCount(view.Bundles), codalab.FormatSize(view.Bytes))
}

// choose returns the user's bundles that match a choice, the newest first: a bundle comes before its parents.
func (w *workspace) choose(ctx context.Context, worksheet string, o rmChoice, before time.Time) ([]client.BundleInfo, error) {
	q := bundleQuery{keywords: []string{".mine"}, keys: []string{"name", "created", "data_size"}}
	if worksheet != "" {
		uuid, err := w.worksheetUUID(ctx)
		if err != nil {
			return nil, err
		}
		q.keywords = append(q.keywords, "host_worksheet="+uuid)
	}
	if len(o.states) > 0 {
		q.keywords = append(q.keywords, "state="+strings.Join(o.states, ","))
	}
	if !before.IsZero() { // a server may read the date in a time zone of its own
		q.keywords = append(q.keywords, ".before="+before.Add(48*time.Hour).UTC().Format(time.DateOnly))
	}
	found, err := w.everyBundle(ctx, q)
	found = slices.DeleteFunc(found, func(b client.BundleInfo) bool {
		late := !before.IsZero() && !b.Metadata.Time("created").Before(before)
		return late || !slices.Contains(removableStates(), string(b.State)) || len(o.states) > 0 && !slices.Contains(o.states, string(b.State))
	})
	slices.Reverse(found) // of one second, too, the last one comes first
	slices.SortStableFunc(found, func(a, b client.BundleInfo) int {
		return b.Metadata.Time("created").Compare(a.Metadata.Time("created"))
	})
	return found, err
}

// removable returns those of some bundles that the server would remove, and adds the others to kept. It asks about many at
// once, and about halves of those of which it refuses one.
func (r *removal) removable(ctx context.Context, bundles []client.BundleInfo) (free []client.BundleInfo, err error) {
	for part := range slices.Chunk(bundles, triedAtOnce) {
		some, err := r.split(ctx, part)
		if err != nil {
			return nil, err
		}
		free = append(free, some...)
		r.printOnTerminal("Looked at %d of %s.", len(free)+len(r.kept), bundleCount(len(bundles)))
	}
	return free, nil
}

func (r *removal) split(ctx context.Context, bundles []client.BundleInfo) ([]client.BundleInfo, error) {
	if len(bundles) == 0 {
		return nil, nil
	}
	try := r.options
	try.DryRun = true
	_, refusal := r.at.DeleteBundles(ctx, uuidsOf(bundles), try)
	switch {
	case refusal == nil:
		for _, b := range bundles {
			r.doomed[b.UUID] = true
		}
		return bundles, nil
	case !keeps(refusal):
		return nil, refusal
	case len(bundles) == 1:
		return r.decide(ctx, bundles[0], refusal)
	}
	half := len(bundles) / 2
	newer, err := r.split(ctx, bundles[:half])
	if err != nil {
		return nil, err
	}
	older, err := r.split(ctx, bundles[half:])
	return slices.Concat(newer, older), err
}

// decide keeps a bundle that the server refuses to remove now, unless all that depend on it are removed before it.
func (r *removal) decide(ctx context.Context, b client.BundleInfo, refusal error) ([]client.BundleInfo, error) {
	found, err := r.at.Descendants(ctx, []string{b.UUID}, 1)
	if err != nil {
		return nil, err
	}
	children := dependentsOf(found, b.UUID)
	others := slices.DeleteFunc(slices.Clone(children), func(c client.BundleInfo) bool { return r.doomed[c.UUID] })
	if len(children) > 0 && len(others) == 0 {
		r.doomed[b.UUID] = true
		return []client.BundleInfo{b}, nil
	}
	reason := spellDependents(others)
	if call, ok := errors.AsType[*codalab.Error](refusal); ok && len(others) == 0 {
		first, _, _ := strings.Cut(call.Message, "\n")
		reason = strings.TrimSuffix(first, ":")
	}
	r.kept = append(r.kept, keptBundle{b.UUID, b.Metadata.String("name"), reason})
	return nil, nil
}

// keeps reports whether a server refuses to remove bundles, for a reason of theirs.
func keeps(err error) bool {
	return codalab.IsStatus(err, 400) || codalab.IsStatus(err, 403) || codalab.IsStatus(err, 404)
}

// dependentsOf returns the bundles that depend on one, of the answer to a question for its descendants.
func dependentsOf(found []client.BundleInfo, parent string) []client.BundleInfo {
	return slices.DeleteFunc(slices.Clone(found), func(b client.BundleInfo) bool {
		return b.UUID == parent || !slices.ContainsFunc(b.Dependencies, func(d codalab.Dependency) bool { return d.ParentUUID == parent })
	})
}

// spellDependents says by how many bundles another one is needed, and names some of them.
func spellDependents(bundles []client.BundleInfo) string {
	var names []string
	for _, b := range first(bundles, namedDependents) {
		names = append(names, fmt.Sprintf("%s(%s)", b.Metadata.String("name"), shortUUID(b.UUID)))
	}
	text := bundleCount(len(bundles)) + " depend on it: " + strings.Join(names, ", ")
	if len(bundles) == 1 {
		text = "1 bundle depends on it: " + names[0]
	}
	if more := len(bundles) - namedDependents; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func uuidsOf(bundles []client.BundleInfo) []string {
	uuids := make([]string, 0, len(bundles))
	for _, b := range bundles {
		uuids = append(uuids, b.UUID)
	}
	return uuids
}

// show prints every bundle that will be removed, those that stay, and how much that is.
func (r *removal) show(ctx context.Context, bundles []client.BundleInfo) error {
	if len(bundles) > 0 {
		t, err := r.at.table(ctx, bundles, []string{"uuid", "name", "created", "data_size", "state"})
		if err != nil {
			return err
		}
		if err := t.print(r.Stdout); err != nil {
			return err
		}
	}
	var lines []string
	for _, k := range r.kept {
		lines = append(lines, fmt.Sprintf("%s(%s) stays: %s", k.Name, shortUUID(k.UUID), k.Reason))
	}
	switch {
	case len(bundles) == 0 && len(r.kept) == 0:
		lines = append(lines, "None of your bundles match.")
	case len(bundles) == 0:
		lines = append(lines, "None of the bundles that match can be removed; --force removes also those on which others depend.")
	case r.options.DryRun:
		lines = append(lines, fmt.Sprintf("cl rm would remove %s, %s. Nothing is removed yet.", bundleCount(len(bundles)), codalab.FormatSize(addUp(bundles).Bytes)))
	}
	return r.printLines(lines)
}

// remove removes bundles in parts. The same command goes on after an interruption: what is gone no longer matches.
func (r *removal) remove(ctx context.Context, uuids []string) error {
	done := 0
	for part := range slices.Chunk(uuids, removedAtOnce) {
		_, err := r.at.DeleteBundles(ctx, part, r.options)
		switch {
		case ctx.Err() != nil:
			r.warn("Interrupted after %d of %s; the same command removes the rest.", done, bundleCount(len(uuids)))
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("removed %d of %s; the same command goes on: %w", done, bundleCount(len(uuids)), err)
		}
		done += len(part)
		if done < len(uuids) {
			r.printOnTerminal("Removed %d of %s.", done, bundleCount(len(uuids)))
		}
	}
	return nil
}

// canAsk returns standard input if cl can ask a question: both it and standard error are terminals.
func (c *cli) canAsk() (io.Reader, bool) {
	_, in := terminal(c.Stdin)
	_, out := terminal(c.Stderr)
	return c.Stdin, in && out
}

// ask asks a question on the terminal; anything but yes means no.
func (c *cli) ask(ctx context.Context, question string) (bool, error) {
	in, _ := c.canAsk()
	fmt.Fprintf(c.Stderr, "%s [y/N] ", question)
	line, err := background.Call(ctx, func() (string, error) { return bufio.NewReader(in).ReadString('\n') })
	if ctx.Err() != nil {
		_, _ = fmt.Fprintln(c.Stderr) // a terminal
		return false, ctx.Err()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}
