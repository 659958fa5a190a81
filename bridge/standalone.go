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
	// Remote is the name that reports give to the place of a run.
	Remote string
	// Preemptible is told to the server.
	Preemptible bool
	// MostRuns bounds the runs that the worker takes in its life; 0 for no bound.
	MostRuns int64
	// ExitWhenIdle ends the worker when it has had no run for IdleFor.
	ExitWhenIdle bool
	IdleFor      time.Duration
	// CheckInPause is the pause after a check-in that brought nothing; 0 for none.
	CheckInPause time.Duration
	// Until is the time by which the worker has to have ended; zero for none. It takes no run that asks for
	// more time than is left.
	Until time.Time
	// Stop is closed to make the worker give its runs back and end.
	Stop <-chan struct{}
	// Patience bounds the time that a worker takes to stop: half of it for results to be collected, and the
	// rest for the server to have its runs back.
	Patience time.Duration
}

const (
	// stopLookEvery is the pause between two looks whether the worker has to end.
	stopLookEvery = 100 * time.Millisecond
	// stopBefore is the time before Until at which the worker gives its runs back; less if it has little time
	// at all.
	stopBefore = time.Minute
	// lostAfter bounds the wait of a worker that ends when it is idle for a server that does not answer: the
	// worker may hold a Slurm job.
	lostAfter = 5 * time.Minute
	// A stopping worker notifies all rows again every stopAgain, because new rows may have appeared, and rows
	// may have new results.
	stopAgain = time.Second
	// closeWithin is the time for which a worker that ends waits for a run: the server may have sent one before
	// it read that the worker ends.
	closeWithin = 500 * time.Millisecond
)

// errStopped ends the work of a worker that has ended by itself.
var errStopped = errors.New("the worker has ended")

// ErrLost is the error of a worker that ends because it is idle and the server does not answer.
var ErrLost = errors.New("the worker has nothing to do, and the server has not answered for minutes")

// life has the state of a stand-alone worker's life. It is safe for concurrent use.
type life struct {
	standalone *Standalone // nil for a bridge
	// claiming counts the offers that are being claimed, taken the runs of this life. Only Step writes
	// them.
	claiming, taken atomic.Int64
	// ending is set while the server is told that the worker ends: it is stopping, or about to leave.
	ending atomic.Bool
	// stopping is set once the worker takes no runs any more.
	stopping atomic.Bool
	// began is the time of the worker's start; it is set before the others are used.
	began time.Time
}

// local reports whether the jobs are processes of the worker's own host.
func (l *life) local() bool { return l.standalone != nil && l.standalone.Local }

// stopAt returns when the worker gives its runs back; zero for never.
func (l *life) stopAt() time.Time {
	until := l.standalone.Until
	if until.IsZero() {
		return until
	}
	return until.Add(-min(stopBefore, until.Sub(l.began)/4))
}

// refuses returns why a stand-alone worker does not take a run now; empty if it does.
func (l *life) refuses(now time.Time, m codalab.Message) string {
	s := l.standalone
	switch {
	case s == nil:
		return ""
	case l.stopping.Load():
		return "the worker stops"
	case l.runsLeft() <= l.claiming.Load():
		return "the worker has taken all the runs that it may take"
	case !s.Until.IsZero() && m.Resources != nil && m.Bundle.Metadata.String("request_time") != "" &&
		now.Add(time.Duration(m.Resources.Time)*time.Second).After(l.stopAt()):
		return "the worker ends before the run's time limit"
	}
	return ""
}

// runsLeft returns how many runs the worker still takes.
func (l *life) runsLeft() int64 {
	most := l.standalone.MostRuns
	if most == 0 {
		return codalab.UnlimitedRuns
	}
	return max(most-l.taken.Load(), 0)
}

// countClaim counts a row that has left the phase of claiming, or has come back to it.
func (l *life) countClaim(before, after *plan.Row) {
	was, is := before.Phase == plan.Claiming, after.Phase == plan.Claiming
	switch {
	case was && !is && after.Dropped:
		l.claiming.Add(-1)
	case was && !is:
		l.claiming.Add(-1)
		l.taken.Add(1)
	case is && !was:
		l.claiming.Add(1)
		l.taken.Add(-1)
	}
}

// describe adds to a check-in what a stand-alone worker tells of itself.
func (l *life) describe(now time.Time, in *codalab.CheckIn) {
	s := l.standalone
	if s == nil {
		return
	}
	in.ExitAfterNumRuns, in.IsTerminating, in.Preemptible = l.runsLeft(), l.ending.Load(), s.Preemptible
	if !s.Until.IsZero() {
		in.SecondsLeft = max(int64(l.stopAt().Sub(now).Seconds()), 1)
	}
}

// ender ends a stand-alone worker when it has to end, or has nothing to do.
type ender struct {
	*life

	board   *board
	contact *contact
	inbox   *inbox
	log     *slog.Logger
	now     func() time.Time
}

// run ends the worker with errStopped or ErrLost, or returns when ctx ends.
func (e *ender) run(ctx context.Context) error {
	stop := e.standalone.Stop
	var idle, stopped, told time.Time // since when
	tick := time.NewTicker(stopLookEvery)
	defer tick.Stop()
	for {
		now := e.now()
		live := len(e.board.view.live())
		answered := e.contact.answeredAt()
		if live > 0 || idle.IsZero() || answered.IsZero() || e.contact.failing.Load() {
			idle = now
		}
		switch {
		case !stopped.IsZero() && (live == 0 || now.Sub(stopped) > e.standalone.Patience):
			e.log.InfoContext(ctx, "the worker ends", slog.Int("runs", live))
			return errStopped
		case !stopped.IsZero() && now.Sub(told) >= stopAgain:
			told = now
			e.giveBack(now.Sub(stopped) > e.standalone.Patience/2)
		case !stopped.IsZero():
		case e.mustStop(now, stop):
			stopped, told = now, now
			e.log.InfoContext(ctx, "the worker stops; its runs go back to the server", slog.Int("runs", live))
			e.stopping.Store(true)
			e.tellEnding(true)
			e.giveBack(false)
		case live == 0 && e.isLost(now, answered):
			return ErrLost
		case live == 0 && e.mayLeave(now.Sub(idle)):
			if err := e.leave(ctx); err != nil {
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
func (e *ender) mustStop(now time.Time, stop <-chan struct{}) bool {
	return stop == nil && e.standalone.Stop != nil || !e.standalone.Until.IsZero() && now.After(e.stopAt())
}

// isLost reports whether a worker that ends when it is idle waits in vain for a server, which answered last at
// that time.
func (e *ender) isLost(now, answered time.Time) bool {
	if answered.IsZero() {
		answered = e.began
	}
	return e.standalone.ExitWhenIdle && now.Sub(answered) > max(lostAfter, e.standalone.IdleFor)
}

// mayLeave reports whether a worker without runs ends.
func (e *ender) mayLeave(idle time.Duration) bool {
	s := e.standalone
	return e.runsLeft() == 0 || s.ExitWhenIdle && idle > s.IdleFor
}

// leave tells the server that the worker ends, and ends it unless a run was on its way.
func (e *ender) leave(ctx context.Context) error {
	e.tellEnding(true)
	if err := pause.For(ctx, closeWithin); err != nil {
		return err
	}
	if len(e.board.view.live()) == 0 {
		e.log.InfoContext(ctx, "the worker has nothing to do, and ends")
		return errStopped
	}
	e.tellEnding(false)
	return nil
}

// tellEnding has the next check-in, which is sent at once, tell whether the worker ends.
func (e *ender) tellEnding(ending bool) {
	e.ending.Store(ending)
	e.board.reports.hurry(true)
}

// giveBack tells all rows that the worker stops; with leave, that it waits for no results any more.
func (e *ender) giveBack(leave bool) {
	for _, bundle := range e.board.view.live() {
		e.inbox.put(bundle, func(n *plan.News) { n.GiveBack, n.Leave = true, n.Leave || leave })
	}
}

// goodbyeWithin bounds the last check-in. CodaLab's own server has read it long before it answers.
const goodbyeWithin = time.Second
