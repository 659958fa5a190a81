package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

const (
	// measureEvery is the pause between two measurements.
	measureEvery = 10 * time.Second
	// refreshLow is the time for which rows that wait for room show the same figure.
	refreshLow = 5 * time.Minute
)

// diskWatch measures the shared disk. Its figures are of the last result that it has passed on.
type diskWatch struct {
	gauge     Gauge
	inForce   *inForce
	board     *board
	inbox     *inbox
	condition *condition
	log       *slog.Logger
	now       func() time.Time

	asks   diskspace.Question
	known  bool
	low    string // why no new work may be put onto the disk
	at     time.Time
	silent time.Time // since when the disk does not answer; zero if it does
}

// run measures the shared disk every measureEvery until ctx ends.
func (w *diskWatch) run(ctx context.Context) error {
	blind := false
	return every(ctx, measureEvery, w.now, func(now time.Time) {
		err := w.measure(ctx, now)
		for err == nil && !w.silent.IsZero() && ctx.Err() == nil { // each waits for the same call
			err = w.measure(ctx, w.now())
		}
		if err != nil && !blind {
			w.log.WarnContext(ctx, "cannot see how full the shared disk is", errorAttr(err))
		}
		blind = err != nil
	})
}

// measure implements Bridge.Measure.
func (w *diskWatch) measure(ctx context.Context, now time.Time) error {
	space, err := w.asks.Ask(ctx, w.gauge.Space)
	var silent *diskspace.SilentError
	switch {
	case errors.As(err, &silent):
		w.fallSilent(ctx, now)
		return nil
	case err != nil && ctx.Err() != nil:
		return nil //nolint:nilerr // the bridge ends
	}
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	w.answersAgain(ctx, w.now())
	lowWater := w.inForce.now().LowWater
	w.board.capacity.setFree(max(space.Free-lowWater.Of(space.Total), 1))
	low := lowWater.Lack(space, w.low != "")
	turned := !w.known || (low == "") != (w.low == "")
	if turned || low != w.low && (now.Sub(w.at) >= refreshLow || now.Before(w.at)) {
		w.known, w.low, w.at = true, low, now
		w.passLow(low, turned)
	}
	return nil
}

// fallSilent notes that the shared disk has not answered since a moment. What the disk had free counts
// as unknown then.
func (w *diskWatch) fallSilent(ctx context.Context, since time.Time) {
	if !w.silent.IsZero() {
		return
	}
	w.silent, w.known = since, false
	w.log.WarnContext(ctx, "the shared disk does not answer; jobs go on, and work that needs the disk waits", slog.Time("since", since))
	words := "the site's shared disk has not answered since " + since.UTC().Format("15:04:05 UTC")
	w.passLow(words, true)
	w.tellWaiting(func(plan.Row) string { return "Waiting: " + words + "." })
}

// answersAgain notes that the shared disk answers.
func (w *diskWatch) answersAgain(ctx context.Context, now time.Time) {
	if w.silent.IsZero() {
		return
	}
	w.log.InfoContext(ctx, "the shared disk answers again", slog.Duration("waited", now.Sub(w.silent).Round(time.Second)))
	w.silent = time.Time{}
	w.tellWaiting(func(r plan.Row) string { return plan.Row{Phase: r.Phase, Standalone: r.Standalone}.RunStatus() })
}

// tellWaiting tells the rows whose files are on their way to or from the shared disk how that goes. A row
// whose staging has not begun is told why by Step.
func (w *diskWatch) tellWaiting(progress func(plan.Row) string) {
	for _, r := range w.board.view.all() {
		staged := r.NeedsDisk() && r.Progress != ""
		if staged || r.Phase == plan.Submitting && !r.Prepared || r.Phase == plan.Collecting {
			said := progress(*r)
			w.inbox.put(r.Bundle, func(n *plan.News) { n.Progress = said })
		}
	}
}

// passLow tells the server and the rows without inputs whether new work may be put onto the disk.
func (w *diskWatch) passLow(low string, turned bool) {
	w.condition.diskLow(low)
	w.board.showLow(low, turned)
	w.inbox.putDiskLow(low)
}
