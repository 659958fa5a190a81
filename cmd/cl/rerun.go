package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const rerunHelp = `Repeat a run: the same command on the same inputs, with the same requests, in the
same image by its digest. Print the new run's uuid.

  cl rerun --check train   only say whether all that it needs is still there
  cl rerun train           repeat it
  cl rerun --wait train    repeat it, wait for the end, and show what differs

What differs is shown as cl diff shows it: image, state, exit code and the files of
the results; also the site, the GPUs with their driver, and the versions of cl-slurm,
Slurm and the container runtime, which make no difference. --check compares these
with your newest run in the same queue. The exit codes are those of diff: 0 the same,
1 different, 2 trouble: an error, or something that is not there any more; 3 if the
server does not answer.

cl run --like repeats a run with changes, cl mimic all that was made from a bundle.`

// rerunOptions are the flags of cl rerun.
type rerunOptions struct {
	name        string
	check, wait bool
	stat, whole bool
}

// rerunCommand has no counterpart in CodaLab's own cl.
func (c *cli) rerunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rerun <bundle>", Short: "Repeat a run, and show what differs", Long: rerunHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeBundles,
	}
	var o rerunOptions
	worksheet := c.worksheetFlag(cmd)
	c.colourFlag(cmd)
	cmd.Flags().StringVarP(&o.name, "name", "n", "", "name of the new run; default: that of the old one")
	cmd.Flags().BoolVar(&o.check, "check", false, "only say whether all that the run needs is still there")
	cmd.Flags().BoolVarP(&o.wait, "wait", "W", false, "wait for the end, and show what differs")
	cmd.Flags().BoolVar(&o.stat, "stat", false, "with --wait, name the files that differ, without their insides")
	cmd.Flags().BoolVar(&o.whole, "whole", false, "with --wait, read and compare all files, however large")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.check && (o.wait || o.name != ""):
			return program.Usage(refusef("--check makes no run: leave out --wait and --name"))
		case !o.wait && (o.stat || o.whole):
			return program.Usage(refusef("--stat and --whole say how to compare: they need --wait"))
		}
		return diffExit(cmd.Context(), c.rerun(cmd.Context(), *worksheet, args[0], o))
	}
	return cmd
}

func (c *cli) rerun(ctx context.Context, worksheet, spec string, o rerunOptions) error {
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, []string{spec})
	if err != nil {
		return err
	}
	if len(uuids) != 1 {
		return refusef("cl rerun repeats one run; %s is %d bundles", spec, len(uuids))
	}
	old, err := at.Bundle(ctx, uuids[0])
	switch {
	case err != nil:
		return err
	case old.Type != codalab.TypeRun:
		return refusef("%s is a bundle of type %s, and no run", spec, old.Type)
	case o.wait && !old.State.Final():
		return refusef("%s has not ended: it is %s, and there is nothing to compare with", spec, old.State)
	}
	needs, err := c.needs(ctx, at, old.Bundle)
	if err != nil {
		return err
	}
	if o.check {
		needs.Platform = old.Platform
		return c.printNeeds(needs)
	}
	if len(needs.Missing) > 0 {
		return refusef("%s cannot be repeated: %s", spec, strings.Join(needs.Missing, "; "))
	}
	for _, note := range needs.Notes {
		c.warn("cl: %s", note)
	}
	return c.repeat(ctx, at, old.Bundle, o)
}

// runNeeds says whether a run can be repeated, in JSON.
type runNeeds struct {
	UUID string `json:"uuid"`
	// Missing has a sentence about each thing that is not there.
	Missing []string `json:"missing"`
	// Notes has sentences about what may make the results different.
	Notes []string `json:"notes"`
	// Platform is that of the run; nil if it is not known.
	Platform *codalab.Platform `json:"platform,omitempty"`
}

// needs finds out whether all that a run needs is still there. Whether its registry still has the image, only the worker
// finds out.
func (c *cli) needs(ctx context.Context, at *workspace, old codalab.Bundle) (runNeeds, error) {
	n := runNeeds{UUID: old.UUID, Missing: []string{}, Notes: []string{}}
	for _, d := range old.Dependencies {
		missing, err := missingInput(ctx, at, d, old.Metadata.Bool("allow_failed_dependencies"))
		if err != nil {
			return n, err
		}
		if missing != "" {
			n.Missing = append(n.Missing, missing)
		}
	}
	if image := old.Metadata.String("docker_image"); !strings.Contains(image, "@") {
		n.Notes = append(n.Notes, "the digest of its image is not known: the image may be another one by now")
	}
	changes, err := platformChanges(ctx, at, old)
	if err != nil && ctx.Err() == nil { // they are only notes
		changes = []string{"what your newest run ran on is not known: " + explain(err).Error()}
	}
	n.Notes = append(n.Notes, changes...)
	return n, ctx.Err()
}

// platformChanges has a sentence about each thing that a run ran on and that was another one, or of another version, for the
// user's newest run after it with the same requests of queue and GPUs. What the next one will run on, nobody knows yet.
func platformChanges(ctx context.Context, at *workspace, old codalab.Bundle) ([]string, error) {
	if old.Platform == nil {
		return nil, nil
	}
	words := []string{".mine", "type=run", "state=ready,failed", "id=.sort-", ".limit=20"}
	if queue := old.Metadata.String("request_queue"); queue != "" {
		words = append(words, "request_queue="+queue)
	}
	found, _, err := at.SearchBundles(ctx, "", words)
	if err != nil {
		return nil, err
	}
	for _, b := range found {
		if b.UUID == old.UUID || b.Metadata.Time("created").Before(old.Metadata.Time("created")) {
			break // the newest come first
		}
		same := b.Metadata.String("request_queue") == old.Metadata.String("request_queue") && b.Metadata.Int("request_gpus") == old.Metadata.Int("request_gpus")
		if same && b.Platform != nil {
			return changesSince(old.Platform, b), nil
		}
	}
	return nil, nil
}

// changesSince compares what a run ran on with what a newer one did.
func changesSince(old *codalab.Platform, newest client.BundleInfo) (changes []string) {
	for _, name := range codalab.PlatformFacts(old, newest.Platform) {
		was, is := cmp.Or(old.Fact(name), "not known"), cmp.Or(newest.Platform.Fact(name), "not known")
		if was != is {
			changes = append(changes, fmt.Sprintf("another %s: %s then, and %s for your newest run there, %s(%s)",
				name, was, is, newest.Metadata.String("name"), shortUUID(newest.UUID)))
		}
	}
	return changes
}

// missingInput is a sentence about an input that is not there any more; empty if it is there.
func missingInput(ctx context.Context, at *workspace, d codalab.Dependency, failedToo bool) (string, error) {
	name := "the input " + d.ChildPath + " (" + joinPath(d.ParentUUID, d.ParentPath) + ")"
	parent, err := at.Bundle(ctx, d.ParentUUID)
	switch {
	case isNotFound(err) || err == nil && parent.Type == codalab.TypePrivate:
		return name + " is gone, or you may not read it", nil
	case err != nil:
		return "", err
	case parent.State != codalab.StateReady && !failedToo:
		return name + " is " + string(parent.State), nil
	}
	_, err = at.ContentsInfo(ctx, codalab.Target{BundleUUID: d.ParentUUID, Subpath: d.ParentPath}, 0)
	if isNotFound(err) {
		return name + " has no contents any more", nil
	}
	return "", err
}

// ranOn says what a run ran on; empty if nothing is known.
func ranOn(p *codalab.Platform) string {
	var said []string
	for _, f := range p.Facts() {
		said = append(said, f.Name+" "+f.Text)
	}
	if said == nil {
		return ""
	}
	text := "it ran on " + strings.Join(said, ", ")
	if p.Imported {
		text += ", as the archive or the server says from which it was copied"
	}
	return text
}

// printNeeds ends with the exit code 1 if something is missing.
func (c *cli) printNeeds(n runNeeds) error {
	var err error
	if c.asJSON {
		err = c.printJSON(n)
	} else {
		lines := slices.Concat(n.Missing, n.Notes)
		if text := ranOn(n.Platform); text != "" {
			lines = append(lines, text)
		}
		for _, line := range lines {
			if err == nil {
				err = c.print(codalab.Sentence(line))
			}
		}
	}
	if err == nil && len(n.Missing) > 0 {
		return errDiffer
	}
	return err
}

// repeat makes the run again, on the worksheet that the user works on.
func (c *cli) repeat(ctx context.Context, at *workspace, old codalab.Bundle, o rerunOptions) error {
	given := codalab.Metadata{}
	if o.name != "" {
		given["name"] = o.name
	}
	m := old.MetadataLike(given)
	m.WithDefaults(codalab.TypeRun)
	if err := c.checkNew(ctx, codalab.TypeRun, m, false); err != nil {
		return err
	}
	sheet, err := at.worksheetUUID(ctx)
	if err != nil {
		return err
	}
	var deps []codalab.Dependency
	for _, d := range old.Dependencies {
		deps = append(deps, codalab.Dependency{ChildPath: d.ChildPath, ParentUUID: d.ParentUUID, ParentPath: d.ParentPath})
	}
	run, err := c.create(ctx, at, client.NewBundle{
		Worksheet: sheet, Type: codalab.TypeRun, Command: old.CommandText(), Metadata: m, Dependencies: deps,
	})
	if err != nil {
		return err
	}
	if !o.wait {
		return c.printUUID(run)
	}
	c.warn("%s", run)
	w := waiter{cli: c, workspace: at, uuid: run}
	if _, err := w.wait(ctx); err != nil {
		return c.interrupted(ctx, err, run)
	}
	return c.diff(ctx, at.Address()+"::", old.UUID, run, diffOptions{outcome: true, stat: o.stat, whole: o.whole})
}
