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
//	works ──┬─ GiveBack, or Until is near ─► gives its runs back ─► ends
//	        ├─ begun again as another program ─► stops its runs ──► ends (ErrReplaced)
//	        ├─ MostRuns taken, and all of them ended ─────────────► ends
//	        └─ idle for IdleFor ─► tells the server ──────────────► ends
type Standalone struct {
	// Local is set if the jobs are processes of the worker's own host. Its capacity is that of the host.
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
	// DeniedFor ends a worker when the server has refused its login for so long; 0 for never. It is for a login that
	// nobody can repair: the worker can report no end of a run, and may hold a machine that costs money.
	DeniedFor time.Duration
	// GiveBack is closed to make the worker give its runs back and end.
	GiveBack <-chan struct{}
	// Patience bounds the time that a worker takes to give its runs back: half of it to collect results, and the
	// rest until the server has its runs back.
	Patience time.Duration
}

const (
	// checkEndEvery is the pause between two checks whether the worker has to end.
	checkEndEvery = 100 * time.Millisecond
	// giveBackBefore is the time before Until at which the worker gives its runs back; less if it has little time
	// at all.
	giveBackBefore = time.Minute
	// lostAfter bounds the wait of a worker that ends when it is idle for a server that does not answer: the
	// worker may hold a Slurm job.
	lostAfter = 5 * time.Minute
	// A worker that gives its runs back notifies all rows again every giveBackAgain, because new rows may have
	// appeared, and rows may have new results.
	giveBackAgain = time.Second
	// closeWithin is the time for which a worker that ends waits for a run: the server may have sent one before
	// it read that the worker ends.
	closeWithin = 500 * time.Millisecond
)

// errEnded ends the work of a worker that has ended by itself.
var errEnded = errors.New("the worker has ended")

// ErrLost is the error of a worker that ends because it is idle and the server does not answer.
var ErrLost = errors.New("the worker has nothing to do, and the server has not answered for minutes")

// ErrReplaced is the error of a worker that ends because it has begun again as another program, with the same worker
// token: the batch system has started its job again, or two programs have one token. Its runs are that program's, and
// the server takes nothing from this one.
var ErrReplaced = errors.New("another program is this worker now")

// life has the state of a stand-alone worker's life. It is safe for concurrent use.
type life struct {
	standalone *Standalone // nil for a bridge
	// claiming counts the offers that are being claimed, taken the runs of this life. Only Step writes
	// them.
	claiming, taken atomic.Int64
	// ending is set while the server is told that the worker ends: it gives its runs back, or is about to leave.
	ending atomic.Bool
	// givingBack is set once the worker gives its runs back and takes no more.
	givingBack atomic.Bool
	// began is the time of the worker's start; it is set before the others are used.
	began time.Time
}

// local reports whether the jobs are processes of the worker's own host.
func (l *life) local() bool { return l.standalone != nil && l.standalone.Local }

// giveBackAt returns when the worker gives its runs back; zero for never.
func (l *life) giveBackAt() time.Time {
	until := l.standalone.Until
	if until.IsZero() {
		return until
	}
	return until.Add(-min(giveBackBefore, until.Sub(l.began)/4))
}

// refuses returns why a stand-alone worker does not take a run now; empty if it does.
func (l *life) refuses(now time.Time, m codalab.Message) string {
	s := l.standalone
	switch {
	case s == nil:
		return ""
	case l.givingBack.Load():
		return "the worker ends"
	case l.runsLeft() <= l.claiming.Load():
		return "the worker has taken all the runs that it may take"
	case !s.Until.IsZero() && m.Resources != nil && m.Bundle.Metadata.String("request_time") != "" &&
		now.Add(time.Duration(m.Resources.Time)*time.Second).After(l.giveBackAt()):
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
		in.SecondsLeft = max(int64(l.giveBackAt().Sub(now).Seconds()), 1)
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

// run ends the worker with errEnded or ErrLost, or returns when ctx ends.
func (e *ender) run(ctx context.Context) error {
	signal := e.standalone.GiveBack
	var idle, began, told time.Time // since when
	tick := time.NewTicker(checkEndEvery)
	defer tick.Stop()
	for {
		now := e.now()
		live, replaced := len(e.board.view.live()), e.contact.replaced.Load()
		answered := e.contact.answeredAt()
		if live > 0 || idle.IsZero() || answered.IsZero() || e.contact.failing.Load() {
			idle = now
		}
		switch {
		case !began.IsZero() && (live == 0 || replaced != nil && e.board.view.working() == 0 || now.Sub(began) > e.standalone.Patience):
			return e.end(ctx, live, replaced)
		case !began.IsZero() && now.Sub(told) >= giveBackAgain:
			told = now
			e.giveBack(replaced != nil || now.Sub(began) > e.standalone.Patience/2)
		case !began.IsZero():
		case replaced != nil:
			began, told = now, now
			e.log.WarnContext(ctx, "another program is this worker now; the worker stops its runs, and ends", slog.Int("runs", live), errorAttr(replaced))
			e.givingBack.Store(true)
			e.giveBack(true)
		case e.mustGiveBack(now, signal):
			began, told = now, now
			e.log.InfoContext(ctx, "the worker gives its runs back to the server, and then ends", slog.Int("runs", live))
			e.givingBack.Store(true)
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
		case <-signal: // nil once it is closed
			signal = nil
		case <-tick.C:
		}
	}
}

// end returns the error that ends the worker.
func (e *ender) end(ctx context.Context, live int, replaced *codalab.Error) error {
	if replaced != nil {
		return fmt.Errorf("%w: %w", ErrReplaced, replaced)
	}
	e.log.InfoContext(ctx, "the worker ends", slog.Int("runs", live))
	return errEnded
}

// mustGiveBack reports whether the worker has to give its runs back now.
func (e *ender) mustGiveBack(now time.Time, signal <-chan struct{}) bool {
	return signal == nil && e.standalone.GiveBack != nil || !e.standalone.Until.IsZero() && now.After(e.giveBackAt())
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
		return errEnded
	}
	e.tellEnding(false)
	return nil
}

// tellEnding has the next check-in, which is sent at once, tell whether the worker ends.
func (e *ender) tellEnding(ending bool) {
	e.ending.Store(ending)
	e.board.reports.hurry(true)
}

// giveBack tells all rows that the worker gives its runs back; with leave, that it waits for no results any more.
func (e *ender) giveBack(leave bool) {
	for _, bundle := range e.board.view.live() {
		e.inbox.put(bundle, func(n *plan.News) { n.GiveBack, n.Leave = true, n.Leave || leave })
	}
}

// goodbyeWithin bounds the last check-in. CodaLab's own server has read it long before it answers.
const goodbyeWithin = time.Second
