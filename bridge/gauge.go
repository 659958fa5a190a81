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
	// measureEvery is the pause between two looks at how full the shared disk
	// is.
	measureEvery = 10 * time.Second
	// refreshLow is how long rows that wait for room say the same number.
	refreshLow = 5 * time.Minute
)

// gauged is what was last said of how full the shared disk is. Measure owns it.
type gauged struct {
	known bool
	low   string
	at    time.Time
}

// measuring looks how full the shared disk is now and then.
func (b *Bridge) measuring(ctx context.Context) error {
	blind := false
	return b.every(ctx, measureEvery, func(now time.Time) {
		err := b.Measure(now)
		if err != nil && !blind {
			b.Log.WarnContext(ctx, "cannot see how full the shared disk is", errorAttr(err))
		}
		blind = err != nil
	})
}

// Measure looks how full the shared disk is, and tells the server and the rows
// whose inputs are not there when that has changed what they wait for. What cannot be measured
// is as it was.
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
	b.pulse.low(low)
	if turned {
		b.view.showLow(low != "") // at once: the next check-in is to tell it
	}
	b.inbox.measured(low)
	return nil
}

// isLow says whether nothing new may be put onto the shared disk. Step asks.
func (b *Bridge) isLow() bool { return b.low != nil && *b.low != "" }

// heed takes in how full the shared disk is. The rows whose inputs are not there
// hear of it.
func (b *Bridge) heed(ctx context.Context, in *arrivals) {
	if in.low == nil {
		return
	}
	before := b.isLow()
	b.low = in.low
	switch {
	case b.isLow() && !before:
		b.Log.WarnContext(ctx, "no bundle is claimed, and no inputs are brought in, until there is room", slog.String("reason", *b.low))
	case before && !b.isLow():
		b.Log.InfoContext(ctx, "the shared disk has room again")
	}
	var waiting []string
	for bundle, e := range b.rows.byBundle {
		if e.row.Phase == plan.Staging && e.row.Staged == nil && e.row.Low != *b.low {
			waiting = append(waiting, bundle)
		}
	}
	slices.Sort(waiting)
	for _, bundle := range waiting {
		in.of(bundle) // decide tells it
	}
}
