package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

const (
	// measureEvery is the pause between two measurements.
	measureEvery = 10 * time.Second
	// refreshLow is how long rows that wait for room show the same figure.
	refreshLow = 5 * time.Minute
)

// gauged is the last result of Measure that was passed on. Only Measure uses it.
type gauged struct {
	known bool
	low   string
	at    time.Time
}

// watchDisk measures the shared disk now and then.
func (b *Bridge) watchDisk(ctx context.Context) error {
	blind := false
	return b.every(ctx, measureEvery, func(now time.Time) {
		err := b.Measure(now)
		if err != nil && !blind {
			b.Log.WarnContext(ctx, "cannot see how full the shared disk is", errorAttr(err))
		}
		blind = err != nil
	})
}

// Measure measures the shared disk. When the result for new work changes, it tells the server
// and the rows without inputs. If the disk cannot be measured nothing changes.
func (b *Bridge) Measure(now time.Time) error {
	space, err := b.Gauge.Space()
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	b.view.free.Store(max(space.Free-b.Policy.LowWater.Of(space.Total), 1))
	g := &b.gauged
	low := b.Policy.LowWater.Low(space, g.low != "")
	turned := !g.known || (low == "") != (g.low == "")
	if !turned && (low == g.low || now.Sub(g.at) < refreshLow && !now.Before(g.at)) {
		return nil
	}
	*g = gauged{known: true, low: low, at: now}
	b.beat.low(low)
	b.view.showLow(low, turned)
	b.inbox.putLow(low)
	return nil
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
		b.Log.WarnContext(ctx, "no bundle is claimed and no inputs are staged until there is room", slog.String("reason", *b.low))
	case before && !b.isLow():
		b.Log.InfoContext(ctx, "the shared disk has room again")
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
