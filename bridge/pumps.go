package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func errorAttr(err error) slog.Attr { return slog.String("error", err.Error()) }

// every calls fn at once and then after each pause, until ctx ends.
func (b *Bridge) every(ctx context.Context, pause time.Duration, fn func(now time.Time)) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		fn(b.Now())
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// observing looks at Slurm now and then.
func (b *Bridge) observing(ctx context.Context) error {
	silent := false
	var last time.Time // when Slurm was last asked
	return b.every(ctx, b.ObserveEvery, func(now time.Time) {
		if now.Sub(last) < b.observePause() {
			return
		}
		last = now
		err := b.Observe(ctx, now)
		if ctx.Err() == nil {
			b.pulse.slurm(now, err)
		}
		switch {
		case err != nil && !silent && ctx.Err() == nil:
			b.Log.WarnContext(ctx, "Slurm does not answer; jobs go on", errorAttr(err))
		case err == nil && silent:
			b.Log.InfoContext(ctx, "Slurm answers again")
		}
		silent = err != nil
	})
}

// observeIdle is the pause between two snapshots while no row is in flight:
// what is looked for then are jobs that no row stands for.
const observeIdle = time.Minute

func (b *Bridge) observePause() time.Duration {
	if b.view.anyInFlight() || !b.view.observed.Load() {
		return 0
	}
	return observeIdle
}

// Observe asks Slurm for all of the user's jobs and takes in what that says to
// the rows in flight. Its cost does not depend on their number. An answer that
// could not be had says nothing to any row.
func (b *Bridge) Observe(ctx context.Context, now time.Time) error {
	rows := b.view.inFlight()
	snapshot, err := b.Scheduler.Observe(ctx, now)
	b.view.away.Store(err != nil)
	if err != nil {
		return fmt.Errorf("observe Slurm: %w", err)
	}
	found := make(map[plan.SubmissionName][]sbatch.Job, len(snapshot.Jobs))
	for _, j := range snapshot.Jobs {
		m := b.Policy.SubmissionNameOf(j)
		found[m] = append(found[m], j)
	}
	for _, r := range rows {
		jobs := found[r.SubmissionName]
		if r.Shows(jobs) {
			continue
		}
		seen := plan.Observation{SubmissionName: r.SubmissionName, Asked: snapshot.Asked, Jobs: jobs}
		b.inbox.put(r.Bundle, func(n *plan.News) { n.Observation = &seen })
	}
	b.inbox.see(snapshot)
	b.view.observed.Store(true)
	return nil
}

// listening answers the doorbell, which workers ring when they begin and when
// they end.
func (b *Bridge) listening(ctx context.Context) error {
	broken := false
	return b.every(ctx, b.LookEvery, func(time.Time) {
		if !b.view.anyInFlight() {
			return
		}
		err := b.Listen()
		if err != nil && !broken {
			b.Log.WarnContext(ctx, "cannot answer the doorbell", errorAttr(err))
		}
		broken = err != nil
	})
}

// Listen answers the doorbell and reads the records of who rang. What it could
// read counts, also with an error.
func (b *Bridge) Listen() error {
	rang, err := b.Spool.Rang()
	for _, m := range rang {
		b.inbox.put(m.Bundle, b.look(m.Bundle, m.Attempt))
	}
	if err != nil {
		return fmt.Errorf("listen to workers: %w", err)
	}
	return nil
}

// reading reads records in turn.
func (b *Bridge) reading(ctx context.Context) error {
	return b.every(ctx, time.Second, b.ReadTurn)
}

// readAtOnce bounds the records that are read in one turn, so that the price
// does not grow with the number of rows.
const readAtOnce = 20

// ReadTurn reads the records of some rows in flight, those first that have not
// been read for the longest time and none that was read within ReadEvery: for
// their usage, and in case a ring of the doorbell was lost.
func (b *Bridge) ReadTurn(now time.Time) {
	for _, r := range b.view.turn(now, b.ReadEvery) {
		if r.Phase != plan.Submitting {
			b.inbox.put(r.Bundle, b.look(r.Bundle, r.Attempt))
		}
	}
}
