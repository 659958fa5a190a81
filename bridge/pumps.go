package bridge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// watchSlurm observes Slurm every ObserveEvery while it has to.
func (b *Bridge) watchSlurm(ctx context.Context) error {
	silent := false
	var last time.Time // when Slurm was last asked
	var settingsDue time.Time
	return b.every(ctx, b.ObserveEvery, func(now time.Time) {
		if now.Sub(last) < b.observePause() {
			return
		}
		last = now
		err := b.Observe(ctx, now)
		if ctx.Err() == nil {
			b.beat.slurm(now, err)
		}
		switch {
		case err != nil && !silent && ctx.Err() == nil:
			b.Log.WarnContext(ctx, "Slurm does not answer; jobs go on, and nothing is submitted or cancelled", errorAttr(err))
		case err == nil && silent:
			b.Log.InfoContext(ctx, "Slurm answers again")
		}
		silent = err != nil
		if err == nil {
			settingsDue = b.AskSettings(ctx, now, settingsDue)
		}
	})
}

// observeIdle is the pause between two snapshots while no row is in flight: only orphan jobs
// can be found then.
const observeIdle = time.Minute

func (b *Bridge) observePause() time.Duration {
	if b.view.anyInFlight() || !b.view.observed.Load() {
		return 0
	}
	return observeIdle
}

// Observe asks Slurm for all of the user's jobs, and tells the rows in flight what the answer
// shows. It costs the same for any number of rows. Without an answer no row gets news.
func (b *Bridge) Observe(ctx context.Context, now time.Time) error {
	rows := b.view.inFlight()
	snapshot, err := b.Scheduler.Observe(ctx, now)
	b.view.unreachable.Store(err != nil)
	if err != nil {
		return fmt.Errorf("observe the jobs: %w", err)
	}
	found := b.jobsByRow(snapshot)
	for _, r := range rows {
		jobs := found.of(r)
		if r.Shows(jobs) {
			continue
		}
		seen := plan.Observation{SubmissionName: r.SubmissionName, Job: r.Job.ID, Asked: snapshot.Asked, Jobs: jobs}
		b.inbox.put(r.Bundle, func(n *plan.News) { n.Observation = &seen })
	}
	b.inbox.putSnapshot(snapshot)
	b.view.observed.Store(true)
	return nil
}

// jobsByRow finds the jobs of a snapshot that may be a row's: each by its name, and by its bundle if
// it has this bridge's comment, since a job can be renamed; and by its id.
type jobsByRow struct {
	named map[string][]sbatch.Job
	all   []sbatch.Job // in the order of their ids
}

func (b *Bridge) jobsByRow(s sbatch.Snapshot) jobsByRow {
	found := jobsByRow{make(map[string][]sbatch.Job, len(s.Jobs)), s.Jobs}
	for _, j := range s.Jobs {
		key := j.Name
		if stamp, ok := plan.StampOf(j); ok && stamp.Bridge == b.Policy.Bridge {
			key = stamp.Bundle
		}
		found.named[key] = append(found.named[key], j)
	}
	return found
}

// of returns the jobs that may be the row's, in the order of their ids. Next decides which of them
// are.
func (f jobsByRow) of(r *plan.Row) []sbatch.Job {
	jobs := f.named[r.Bundle]
	if other := f.named[string(r.SubmissionName)]; len(other) > 0 {
		jobs = slices.SortedFunc(slices.Values(slices.Concat(jobs, other)), byJobID)
	}
	known := sbatch.Job{ID: r.Job.ID}
	i, shown := slices.BinarySearchFunc(f.all, known, byJobID)
	at, named := slices.BinarySearchFunc(jobs, known, byJobID)
	if !shown || named {
		return jobs
	}
	return slices.Insert(slices.Clone(jobs), at, f.all[i]) // its name is another one
}

func byJobID(a, b sbatch.Job) int { return cmp.Compare(a.ID, b.ID) }

// watchDoorbell reads the doorbell, which workers ring when they begin and when they end.
func (b *Bridge) watchDoorbell(ctx context.Context) error {
	broken := false
	return b.every(ctx, b.DoorbellEvery, func(now time.Time) {
		err := b.Listen(now)
		if err != nil && !broken {
			b.Log.WarnContext(ctx, "cannot answer the doorbell", errorAttr(err))
		}
		broken = err != nil
	})
}

// Listen reads the doorbell, unless no worker can have rung. Then it reads the records of each attempt
// whose worker rang. If it returns an error, the rows have the records that it could read all the same.
func (b *Bridge) Listen(now time.Time) error {
	if !b.view.mayRing(now) {
		return nil
	}
	rang, err := b.Spool.AnswerDoorbell()
	for _, ring := range rang {
		if r, ok := b.view.row(ring.Bundle); ok && r.OnDisk == ring.Attempt {
			b.inbox.put(r.Bundle, b.readRecords(r))
		}
	}
	if err != nil {
		return fmt.Errorf("listen to workers: %w", err)
	}
	return nil
}

// pollRecords reads records in turn.
func (b *Bridge) pollRecords(ctx context.Context) error {
	return b.every(ctx, time.Second, b.ReadTurn)
}

// readAtOnce bounds the records that are read in one turn, so that its cost does not grow with
// the number of rows.
const readAtOnce = 2

// resumedAtOnce is that bound for rows of an earlier life of the bridge: soon after a start, the records
// of each are read once.
const resumedAtOnce = 20

// ReadTurn reads the records of some attempts on which a worker may be at work, for their usage: of
// those that it has not read for the longest time, and of none that it has read within ReadEvery. The
// start and the end of an attempt are noticed by the doorbell or, if a ring is lost, by a snapshot of
// Slurm.
func (b *Bridge) ReadTurn(now time.Time) {
	for _, r := range b.view.nextTurns(now, b.ReadEvery) {
		b.inbox.put(r.Bundle, b.readRecords(*r))
	}
}
