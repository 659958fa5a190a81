package bridge

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

func errorAttr(err error) slog.Attr { return slog.String("error", err.Error()) }

// every calls fn at once and then after each pause, until ctx ends.
func every(ctx context.Context, pause time.Duration, fn func(now time.Time)) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		fn(time.Now()) //nolint:forbidigo // a pump is where the clock is read
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// observing asks Slurm for all of the user's jobs while any row may have one.
// Its cost does not depend on their number. An answer that could not be had
// says nothing to any row.
func (b *Bridge) observing(ctx context.Context) error {
	silent := false
	return every(ctx, b.ObserveEvery, func(now time.Time) {
		rows := b.view.where(plan.Row.InFlight)
		if len(rows) == 0 {
			return
		}
		snapshot, err := b.Scheduler.Observe(ctx, now)
		switch {
		case err != nil && !silent && ctx.Err() == nil:
			b.Log.WarnContext(ctx, "Slurm does not answer; jobs go on", errorAttr(err))
			fallthrough
		case err != nil:
			silent = true
			return
		case silent:
			b.Log.InfoContext(ctx, "Slurm answers again")
			silent = false
		}
		found := snapshot.ByName()
		for _, r := range rows {
			jobs := found[string(r.Mark)]
			if r.Shows(jobs) {
				continue
			}
			seen := plan.Sighting{Mark: r.Mark, Asked: snapshot.Asked, Jobs: jobs}
			b.inbox.put(r.Bundle, func(n *plan.News) { n.Sighting = &seen })
		}
	})
}

// listening answers the doorbell, which workers ring when they begin and when
// they end.
func (b *Bridge) listening(ctx context.Context) error {
	bell := b.Policy.Layout.Bell()
	broken := false
	return every(ctx, b.LookEvery, func(now time.Time) {
		if !b.view.any(plan.Row.InFlight) {
			return
		}
		rang, err := bell.Answer()
		if err != nil && !broken {
			b.Log.WarnContext(ctx, "cannot answer the doorbell", errorAttr(err))
		}
		broken = err != nil
		for _, m := range rang {
			b.inbox.put(m.Bundle, b.look(m.Bundle, m.Attempt, now))
		}
	})
}

// readAtOnce bounds the records that are read in one turn, so that the price
// does not grow with the number of rows.
const readAtOnce = 20

// reading reads the records of the rows in flight in turn, oldest first: for
// their usage, and in case a ring of the doorbell was lost.
func (b *Bridge) reading(ctx context.Context) error {
	read := map[string]time.Time{}
	return every(ctx, time.Second, func(now time.Time) {
		rows := b.view.where(func(r plan.Row) bool { return r.InFlight() && r.Attempt > 0 && r.Phase != plan.Submitting })
		slices.SortFunc(rows, func(x, y plan.Row) int {
			return cmp.Or(read[x.Bundle].Compare(read[y.Bundle]), cmp.Compare(x.Bundle, y.Bundle))
		})
		for i, r := range rows {
			if i == readAtOnce || now.Sub(read[r.Bundle]) < b.ReadEvery {
				break
			}
			read[r.Bundle] = now
			b.inbox.put(r.Bundle, b.look(r.Bundle, r.Attempt, now))
		}
		for bundle := range read {
			if r, ok := b.view.row(bundle); !ok || !r.InFlight() {
				delete(read, bundle)
			}
		}
	})
}
