package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
	"github.com/cl-slurm/cl-slurm/cmd/internal/tally"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// pollShare bounds the part of a wait for several bundles that cl spends on questions: after a poll it pauses for at
// least so many times as long as the poll took.
const pollShare = 10

// Without a terminal the counts are printed a minute after the start, and then after pauses that double.
const (
	firstCounts = time.Minute
	mostCounts  = 15 * time.Minute
)

// groupWait waits for several bundles of a server.
type groupWait struct {
	*cli
	at    *workspace
	uuids []string
	o     waitOptions
	// line shows the counts on a terminal; nil elsewhere.
	line *repaint.Line
	// last are the bundles as the server told them last.
	last map[string]codalab.Bundle
	// reported are the bundles whose end was printed, in the order of their ends.
	reported []codalab.Bundle
	// printed are the last counts that were printed without a terminal, and the next ones come at next, after pause.
	printed string
	next    time.Time
	pause   time.Duration
	server  outage
}

// waitForAll waits for several bundles, in few calls.
func (c *cli) waitForAll(ctx context.Context, at *workspace, uuids []string, o waitOptions) error {
	g := &groupWait{
		cli: c, at: at, o: o, line: c.statusLine(), last: map[string]codalab.Bundle{},
		pause: firstCounts, next: c.Now().Add(firstCounts),
	}
	for _, uuid := range uuids {
		if !slices.Contains(g.uuids, uuid) {
			g.uuids = append(g.uuids, uuid)
		}
	}
	err := g.wait(ctx)
	if g.line != nil {
		_ = g.line.Leave() // only a display
	}
	if err == nil || g.server.known {
		o.notify.ended(ctx, c, g.bundles(), err)
	}
	if err != nil {
		return c.interrupted(ctx, err, g.waiting()...)
	}
	failed := g.failure()
	if c.asJSON {
		return errors.Join(c.printJSON(viewEnded(g.reported)), failed)
	}
	return failed
}

// wait polls the bundles until all have ended, or as the options say.
func (g *groupWait) wait(ctx context.Context) error {
	begun := g.Now()
	g.server.answered = begun
	for {
		asked := g.Now()
		err := g.look(ctx)
		if err == nil {
			err = g.report()
		}
		now := g.Now()
		if g.server.ends(err, now) {
			return err
		}
		if g.line == nil {
			g.server.say(g.cli, err)
		}
		g.show(now, g.server.answered)
		if err == nil && g.done() {
			return nil
		}
		longest := min(max(maxPoll, pollShare*now.Sub(asked)), watchMost) // the computer may have slept during the poll
		if err := pause.For(ctx, g.server.pause(min(max(now.Sub(begun)/10, minPoll), longest))); err != nil {
			return err
		}
	}
}

// bundles are all bundles, as the server told them last.
func (g *groupWait) bundles() []codalab.Bundle {
	var list []codalab.Bundle
	for _, uuid := range g.uuids {
		list = append(list, g.last[uuid])
	}
	return list
}

// waiting are the bundles that have not ended.
func (g *groupWait) waiting() []string {
	return slices.DeleteFunc(slices.Clone(g.uuids), func(uuid string) bool { return ended(g.last[uuid].State) })
}

func ended(s codalab.State) bool { return s.Final() || s == tally.Removed }

// look asks for the bundles that have not ended.
func (g *groupWait) look(ctx context.Context) error {
	sheet, err := g.at.worksheetUUID(ctx)
	if err != nil {
		return err
	}
	waiting := g.waiting()
	var found []client.BundleInfo
	var gone []string
	if len(g.last) == 0 { // all have to be there at first
		found, err = g.at.Bundles(ctx, sheet, waiting)
	} else {
		found, gone, err = g.at.again(ctx, sheet, waiting)
	}
	for _, b := range found {
		g.last[b.UUID] = b.Bundle
	}
	for _, uuid := range gone {
		b := g.last[uuid]
		b.State = tally.Removed
		g.last[uuid] = b
	}
	return err
}

// again asks for bundles that were there before, in few calls unless one of them was removed; gone has the uuids of those.
func (w *workspace) again(ctx context.Context, sheet string, uuids []string, include ...string) (found []client.BundleInfo, gone []string, err error) {
	found, err = w.Bundles(ctx, sheet, uuids, include...)
	if !isNotFound(err) {
		return found, nil, err
	}
	for _, uuid := range uuids {
		b, err := w.Bundle(ctx, uuid, include...)
		switch {
		case isNotFound(err):
			gone = append(gone, uuid)
		case err != nil:
			return found, gone, err
		default:
			found = append(found, b)
		}
	}
	return found, gone, nil
}

// report prints the bundles that have ended since the last look: one, if the options end the wait with it.
func (g *groupWait) report() error {
	for _, uuid := range g.uuids {
		b := g.last[uuid]
		if !ended(b.State) || slices.ContainsFunc(g.reported, func(r codalab.Bundle) bool { return r.UUID == uuid }) {
			continue
		}
		g.reported = append(g.reported, b)
		if g.line != nil {
			_ = g.line.Clear() // only a display
		}
		if err := exitError(b); err != nil {
			g.warn("%s %v", bundleText(b), err)
		} else if err := g.printUnlessJSON("%s", b.UUID); err != nil {
			return err
		}
		if g.done() {
			return nil
		}
	}
	return nil
}

// done reports whether the wait is over.
func (g *groupWait) done() bool {
	return len(g.reported) == len(g.uuids) || g.o.any && len(g.reported) > 0 || g.o.firstFailure && g.failure() != nil
}

// failure is the command's error if a bundle has not become ready. Its reason is printed.
func (g *groupWait) failure() error {
	for _, b := range g.reported {
		if b.State != codalab.StateReady {
			return &program.Error{Code: program.ExitFailure}
		}
	}
	return nil
}

// show shows the counts: on a terminal each time, elsewhere seldom and only if they have changed.
func (g *groupWait) show(now, answered time.Time) {
	if g.line != nil {
		text := g.counts(now, answered)
		_ = g.line.Show(text) // only a display
		return
	}
	if now.Before(g.next) || g.done() {
		return
	}
	g.pause = min(2*g.pause, mostCounts)
	g.next = now.Add(g.pause)
	if text := g.counts(now, answered); text != g.printed {
		g.printed = text
		_, _ = termtext.Raw(g.Stderr).Write([]byte(text + "\n")) // only a display
	}
}

// counts is the line about all bundles.
func (g *groupWait) counts(now, answered time.Time) string {
	var t tally.Tally
	var runs []tally.Run
	for _, uuid := range g.uuids {
		b := g.last[uuid]
		t.Add(b.State)
		took := time.Duration(b.Metadata.Float("time") * float64(time.Second))
		runs = append(runs, tally.Run{State: b.State, Took: took})
	}
	text := t.Text(g.palette(g.Stderr))
	if left, ok := tally.Left(runs); ok {
		text += "; " + tally.About(left)
	}
	if away := now.Sub(answered); away > maxPoll {
		text = "the server has not answered for " + wholeSeconds(away) + "; " + text
	}
	return text
}
