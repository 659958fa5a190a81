package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// Standalone makes a bridge a stand-alone worker, as CodaLab's own cl-worker is one: it may end by itself.
//
//	works ──┬─ Stop, or Until is near ─► gives its runs back ─► ends
//	        ├─ MostRuns taken, and all of them ended ─────────► ends
//	        └─ idle for IdleFor ─► tells the server ──────────► ends
type Standalone struct {
	// Local is set if the jobs are processes of the worker's own host. It offers what that has and no more.
	Local bool
	// Remote is what reports name as the place of a run.
	Remote string
	// Preemptible is told to the server.
	Preemptible bool
	// MostRuns is how many runs the worker takes in its life; 0 for no bound.
	MostRuns int64
	// ExitWhenIdle ends the worker when it has had no run for IdleFor.
	ExitWhenIdle bool
	IdleFor      time.Duration
	// CheckInPause is the pause after a check-in that brought nothing; 0 for none.
	CheckInPause time.Duration
	// Until is when the worker has to have ended; zero for never. It takes no run that asks for more
	// time than is left.
	Until time.Time
	// Stop is closed to make the worker give its runs back and end.
	Stop <-chan struct{}
	// Patience is how long a worker that stops waits at most: half of it for results to be delivered, and
	// the rest for the server to have its runs back.
	Patience time.Duration
}

const (
	// stopLookEvery is the pause between two looks whether the worker has to end.
	stopLookEvery = 100 * time.Millisecond
	// stopBefore is how long before Until the worker gives its runs back; less if it has little time at all.
	stopBefore = time.Minute
	// lostAfter is how long a worker that ends when it is idle waits for a server that does not answer. It
	// may hold a Slurm job.
	lostAfter = 5 * time.Minute
	// stopAgain is the pause between two times that rows are told that the worker stops: one may have been
	// made meanwhile, or may have results by now.
	stopAgain = time.Second
	// closeWithin is how long a worker that ends waits for a run that the server has sent before it
	// read that the worker ends.
	closeWithin = 500 * time.Millisecond
)

// errStopped ends the work of a worker that has ended by itself.
var errStopped = errors.New("the worker has ended")

// ErrLost is the error of a worker that ends because it is idle and the server does not answer.
var ErrLost = errors.New("the worker has nothing to do, and the server has not answered for minutes")

// life is what a stand-alone worker remembers of its life.
type life struct {
	// claiming counts the offers that are being claimed, taken the runs of this life. Only Step writes
	// them.
	claiming, taken atomic.Int64
	// ending is set while the server is told that the worker ends: it is stopping, or about to leave.
	ending atomic.Bool
	// stopping is set once the worker takes no runs any more.
	stopping atomic.Bool
	// began is when the worker was started.
	began time.Time
}

// stopAt is when the worker gives its runs back; zero for never.
func (b *Bridge) stopAt() time.Time {
	until := b.Standalone.Until
	if until.IsZero() {
		return until
	}
	return until.Add(-min(stopBefore, until.Sub(b.life.began)/4))
}

// refuses returns why a stand-alone worker does not take a run now; empty if it does.
func (b *Bridge) refuses(now time.Time, m codalab.Message) string {
	s := b.Standalone
	switch {
	case s == nil:
		return ""
	case b.life.stopping.Load():
		return "the worker stops"
	case b.runsLeft() <= b.life.claiming.Load():
		return "the worker has taken all the runs that it may take"
	case !s.Until.IsZero() && m.Resources != nil && m.Bundle.Metadata.String("request_time") != "" &&
		now.Add(time.Duration(m.Resources.Time)*time.Second).After(b.stopAt()):
		return "the worker ends before the run's time limit"
	}
	return ""
}

// runsLeft is how many runs the worker still takes.
func (b *Bridge) runsLeft() int64 {
	most := b.Standalone.MostRuns
	if most == 0 {
		return codalab.UnlimitedRuns
	}
	return max(most-b.life.taken.Load(), 0)
}

// countClaim counts a row that has left the phase of claiming, or has come back to it.
func (b *Bridge) countClaim(before, after *plan.Row) {
	was, is := before.Phase == plan.Claiming, after.Phase == plan.Claiming
	switch {
	case was && !is && after.Dropped:
		b.life.claiming.Add(-1)
	case was && !is:
		b.life.claiming.Add(-1)
		b.life.taken.Add(1)
	case is && !was:
		b.life.claiming.Add(1)
		b.life.taken.Add(-1)
	}
}

// describe adds to a check-in what a stand-alone worker tells of itself.
func (b *Bridge) describe(in *codalab.CheckIn) {
	s := b.Standalone
	if s == nil {
		return
	}
	in.ExitAfterNumRuns, in.IsTerminating, in.Preemptible = b.runsLeft(), b.life.ending.Load(), s.Preemptible
	if !s.Until.IsZero() {
		in.SecondsLeft = max(int64(b.stopAt().Sub(b.Now()).Seconds()), 1)
	}
}

// watchStop ends the worker when it has to end.
func (b *Bridge) watchStop(ctx context.Context) error {
	stop := b.Standalone.Stop
	var idle, stopped, told time.Time // since when
	tick := time.NewTicker(stopLookEvery)
	defer tick.Stop()
	for {
		now := b.Now()
		live := b.view.live()
		answered := b.view.answeredAt()
		if live > 0 || idle.IsZero() || answered.IsZero() || b.view.failing.Load() {
			idle = now
		}
		switch {
		case !stopped.IsZero() && (live == 0 || now.Sub(stopped) > b.Standalone.Patience):
			b.Log.InfoContext(ctx, "the worker ends", slog.Int("runs", live))
			return errStopped
		case !stopped.IsZero() && now.Sub(told) >= stopAgain:
			told = now
			b.giveBack(now.Sub(stopped) > b.Standalone.Patience/2)
		case !stopped.IsZero():
		case b.mustStop(now, stop):
			stopped, told = now, now
			b.Log.InfoContext(ctx, "the worker stops; its runs go back to the server", slog.Int("runs", live))
			b.life.stopping.Store(true)
			b.tellEnding(true)
			b.giveBack(false)
		case live == 0 && b.isLost(now, answered):
			return ErrLost
		case live == 0 && b.mayLeave(now.Sub(idle)):
			if err := b.leave(ctx); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch: %w", ctx.Err())
		case <-stop: // nil once it is closed
			stop = nil
		case <-tick.C:
		}
	}
}

// mustStop reports whether the worker has to give its runs back now.
func (b *Bridge) mustStop(now time.Time, stop <-chan struct{}) bool {
	return stop == nil && b.Standalone.Stop != nil || !b.Standalone.Until.IsZero() && now.After(b.stopAt())
}

// isLost reports whether a worker that ends when it is idle waits in vain for a server, which answered last at
// that time.
func (b *Bridge) isLost(now, answered time.Time) bool {
	if answered.IsZero() {
		answered = b.life.began
	}
	return b.Standalone.ExitWhenIdle && now.Sub(answered) > max(lostAfter, b.Standalone.IdleFor)
}

// mayLeave reports whether a worker without runs ends.
func (b *Bridge) mayLeave(idle time.Duration) bool {
	s := b.Standalone
	return b.runsLeft() == 0 || s.ExitWhenIdle && idle > s.IdleFor
}

// leave tells the server that the worker ends, and ends it unless a run was on its way.
func (b *Bridge) leave(ctx context.Context) error {
	b.tellEnding(true)
	if err := pause.For(ctx, closeWithin); err != nil {
		return err
	}
	if b.view.live() == 0 {
		b.Log.InfoContext(ctx, "the worker has nothing to do, and ends")
		return errStopped
	}
	b.tellEnding(false)
	return nil
}

// tellEnding has the next check-in, which is sent at once, tell whether the worker ends.
func (b *Bridge) tellEnding(ending bool) {
	b.life.ending.Store(ending)
	b.reports.hurry(true)
}

// goodbyeWithin bounds the last check-in. CodaLab's own server has read it long before it answers.
const goodbyeWithin = time.Second

// sayGoodbye tells the server that the worker takes no more runs, when a signal has ended its work. Else the
// server would go on to give it some for a minute. Its runs go on, and are not reported.
func (b *Bridge) sayGoodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, goodbyeWithin)
	defer cancel()
	b.life.ending.Store(true)
	for _, q := range b.Policy.Queues {
		in, _ := b.CheckIn(q)
		in.Runs, in.ExitAfterNumRuns = []codalab.Run{}, 0
		if _, err := b.Service.CheckIn(ctx, b.Identity(q.Name), in); err != nil && ctx.Err() == nil {
			b.Log.InfoContext(ctx, "the server was not told that the worker ends", errorAttr(err))
		}
	}
}

// giveBack tells all rows that the worker stops; with leave, that it waits for no results any more.
func (b *Bridge) giveBack(leave bool) {
	b.view.mu.RLock()
	bundles := make([]string, 0, len(b.view.rows))
	for bundle, r := range b.view.rows {
		if r.Phase != plan.Done {
			bundles = append(bundles, bundle)
		}
	}
	b.view.mu.RUnlock()
	for _, bundle := range bundles {
		b.inbox.put(bundle, func(n *plan.News) { n.GiveBack, n.Leave = true, n.Leave || leave })
	}
}

// answeredAt is when the server last answered a check-in; zero for never.
func (v *view) answeredAt() time.Time {
	if at := v.answered.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// live counts the rows whose bundles have not ended, or whose end the server has not got.
func (v *view) live() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	n := 0
	for _, r := range v.rows {
		if r.Phase != plan.Done {
			n++
		}
	}
	return n
}
