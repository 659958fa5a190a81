package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

const (
	// measureEvery is the pause between two measurements.
	measureEvery = 10 * time.Second
	// refreshLow is how long rows that wait for room show the same figure.
	refreshLow = 5 * time.Minute
)

// gauged is the last result of Measure that was passed on. Only Measure uses it.
type gauged struct {
	known  bool
	low    string
	at     time.Time
	asks   diskspace.Question
	silent time.Time // since when the disk does not answer; zero if it does
}

// watchDisk measures the shared disk now and then.
func (b *Bridge) watchDisk(ctx context.Context) error {
	blind := false
	return b.every(ctx, measureEvery, func(now time.Time) {
		err := b.Measure(ctx, now)
		for !b.gauged.silent.IsZero() && ctx.Err() == nil { // each waits for the same call
			err = b.Measure(ctx, b.Now())
		}
		if err != nil && !blind {
			b.Log.WarnContext(ctx, "cannot see how full the shared disk is", errorAttr(err))
		}
		blind = err != nil
	})
}

// Measure measures the shared disk. When the result for new work changes, it tells the server
// and the rows without inputs. If the disk cannot be measured nothing changes. A disk that does not
// answer takes no new work.
func (b *Bridge) Measure(ctx context.Context, now time.Time) error {
	g := &b.gauged
	space, err := g.asks.Ask(ctx, b.Gauge.Space)
	var silent *diskspace.SilentError
	switch {
	case errors.As(err, &silent):
		b.fallSilent(ctx, now)
		return nil
	case err != nil && ctx.Err() != nil:
		return nil //nolint:nilerr // the bridge ends
	}
	b.answersAgain(ctx, b.Now())
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	b.view.free.Store(max(space.Free-b.Policy.LowWater.Of(space.Total), 1))
	low := b.Policy.LowWater.Low(space, g.low != "")
	turned := !g.known || (low == "") != (g.low == "")
	if turned || low != g.low && (now.Sub(g.at) >= refreshLow || now.Before(g.at)) {
		g.known, g.low, g.at = true, low, now
		b.passLow(low, turned)
	}
	return nil
}

// fallSilent notes that the shared disk has not answered since a moment. What the disk had free counts
// as unknown then.
func (b *Bridge) fallSilent(ctx context.Context, since time.Time) {
	g := &b.gauged
	if !g.silent.IsZero() {
		return
	}
	g.silent, g.known = since, false
	b.Log.WarnContext(ctx, "the shared disk does not answer; jobs go on, and what needs the disk waits", slog.Time("since", since))
	words := "the site's shared disk has not answered since " + since.UTC().Format("15:04:05 UTC")
	b.passLow(words, true)
	b.tellWaiting(func(plan.Row) string { return "Waiting: " + words + "." })
}

// answersAgain notes that the shared disk answers.
func (b *Bridge) answersAgain(ctx context.Context, now time.Time) {
	g := &b.gauged
	if g.silent.IsZero() {
		return
	}
	b.Log.InfoContext(ctx, "the shared disk answers again", slog.Duration("after", now.Sub(g.silent).Round(time.Second)))
	g.silent = time.Time{}
	b.tellWaiting(func(r plan.Row) string { return plan.Row{Phase: r.Phase, Standalone: r.Standalone}.RunStatus() })
}

// tellWaiting tells the rows whose files are on their way to or from the shared disk how that goes. A row
// whose staging has not begun is told why by Step.
func (b *Bridge) tellWaiting(progress func(plan.Row) string) {
	for _, r := range b.Rows() {
		staged := r.Phase == plan.Staging && r.Staged == nil && r.Progress != ""
		if staged || r.Phase == plan.Submitting && !r.Prepared || r.Phase == plan.Collecting {
			said := progress(*r)
			b.inbox.put(r.Bundle, func(n *plan.News) { n.Progress = said })
		}
	}
}

// passLow tells the server and the rows without inputs whether new work may be put onto the disk.
func (b *Bridge) passLow(low string, turned bool) {
	b.beat.low(low)
	b.view.showLow(low)
	if turned { // the check-ins of all queues tell the server
		b.reports.hurry(false)
	}
	b.inbox.putLow(low)
}

// isLow reports whether nothing new may be put onto the shared disk. Only Step calls it.
func (b *Bridge) isLow() bool { return b.low != nil && *b.low != "" }

// applyLow notes how full the shared disk is, and gives news to the rows without inputs.
func (b *Bridge) applyLow(ctx context.Context, in *arrivals) {
	if in.low == nil {
		return
	}
	before := b.isLow()
	b.low = in.low
	switch {
	case b.isLow() && !before:
		b.Log.WarnContext(ctx, "no bundle is claimed and no inputs are staged", slog.String("reason", *b.low))
	case before && !b.isLow():
		b.Log.InfoContext(ctx, "bundles are claimed and inputs are staged again")
	}
	var waiting []string
	for bundle, e := range b.rows.byBundle {
		if e.row != nil && e.row.Phase == plan.Staging && e.row.Staged == nil && e.row.DiskLow != *b.low {
			waiting = append(waiting, bundle)
		}
	}
	slices.Sort(waiting)
	for _, bundle := range waiting {
		in.newsOf(bundle) // decide fills it in
	}
}
