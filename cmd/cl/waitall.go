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
// least so many times as long as the poll took, unless the bundles will have ended before.
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
	// reported are the bundles whose end was printed, in the order of their ends; isReported has their uuids. The last one was printed at
	// reportedAt.
	reported   []codalab.Bundle
	isReported map[string]bool
	reportedAt time.Time
	// printed are the last counts that were printed without a terminal, and the next ones come at next, after pause.
	printed string
	next    time.Time
	pause   time.Duration
	server  outage
}

// waitForAll waits for several bundles, in few calls.
func (c *cli) waitForAll(ctx context.Context, at *workspace, uuids []string, o waitOptions) error {
	g := &groupWait{
		cli: c, at: at, o: o, line: c.statusLine(), last: map[string]codalab.Bundle{}, isReported: map[string]bool{},
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
		took := now.Sub(asked)
		if err != nil { // g.server has a pause of its own
			took = 0
		}
		p := poll{waited: now.Sub(begun), took: took, ended: len(g.reported), left: len(g.uuids) - len(g.reported), silent: now.Sub(g.reportedAt)}
		if err := pause.For(ctx, g.server.pause(p.pause())); err != nil {
			return err
		}
	}
}

// poll has the facts on which the pause after a poll depends.
type poll struct {
	// waited is the time since the wait began, took that of the poll, and silent that since a bundle's end was printed.
	waited, took, silent time.Duration
	// ended counts the bundles that have ended, left the others.
	ended, left int
}

// pause returns the pause until the next poll: a tenth of the time waited so far, as in a wait for one bundle, and pollShare of the poll; but
// toward the end half of the time that the others take if they end as fast as those before.
func (p poll) pause() time.Duration {
	most := watchMost // the computer may have slept during the poll
	if p.ended > 0 {
		others := time.Duration(float64(p.waited) / float64(p.ended) * float64(p.left))
		most = min(most, max(others/2, p.silent/10))
	}
	return max(min(max(pollShare*p.took, min(p.waited/10, maxPoll)), most), minPoll)
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
	// All that this wait prints or counts.
	keys := []string{"name", "time", "failure_message"}
	if len(g.last) == 0 { // all have to be there at first
		found, err = g.at.BundlesWith(ctx, sheet, waiting, keys)
	} else {
		found, gone, err = g.at.again(ctx, sheet, waiting, keys)
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
// keys are the keys of metadata that are needed; none means all.
func (w *workspace) again(ctx context.Context, sheet string, uuids, keys []string, include ...string) (found []client.BundleInfo, gone []string, err error) {
	found, err = w.BundlesWith(ctx, sheet, uuids, keys, include...)
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
		if !ended(b.State) || g.isReported[uuid] {
			continue
		}
		g.reported, g.isReported[uuid], g.reportedAt = append(g.reported, b), true, g.Now()
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
