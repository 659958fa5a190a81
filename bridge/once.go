package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/report"
)

// Once makes a bridge end when it has done what it can do now: a pass, which cron begins again and again. Between two
// passes its jobs wait and run in Slurm, and no check-in reports them.
//
//	sees Slurm as a whole, checks in ─► claims, stages, submits, collects, delivers ─► nothing new for Quiet ─► checks out
type Once struct {
	// Quiet is the time for which nothing may happen before the pass ends. The server needs it to offer bundles: it holds a
	// check-in for five seconds.
	Quiet time.Duration
	// Patience is the time after which the pass ends if Slurm or the server does not answer, and StuckAfter that if nothing
	// moves although there is something to do.
	Patience, StuckAfter time.Duration
	// Ended is called when the pass ends by itself.
	Ended func(Pass)
}

// Pass is what a pass leaves behind.
type Pass struct {
	// InSlurm counts the bundles whose jobs wait or run, and Waiting those that wait to be submitted, or before that.
	InSlurm, Waiting int
	// Ailing counts the bundles that go on only after a failure has been mended. Unfinished counts those of which the
	// bridge had something to do.
	Ailing, Unfinished int
}

// String describes the pass for a log.
func (p Pass) String() string {
	return fmt.Sprintf("%d bundles in Slurm, %d that wait before that, %d that go on only after a failure is mended, %d unfinished", p.InSlurm, p.Waiting, p.Ailing, p.Unfinished)
}

// ErrAway is the error of a pass without an answer.
var ErrAway = errors.New("no answer")

// errPassEnded ends the work of a pass.
var errPassEnded = errors.New("the pass has ended")

// passWords is why a bridge whose pass ends takes no runs until the next one.
const passWords = "the bridge runs at intervals (cl-bridge run --once), and takes bundles again at its next pass"

// passTick is the pause between two looks at the pass.
const passTick = 500 * time.Millisecond

// passEnder ends a pass.
type passEnder struct {
	once      *Once
	inForce   *inForce
	board     *board
	contact   *contact
	condition *condition
	log       *slog.Logger
	now       func() time.Time
}

// run ends the pass with errPassEnded or ErrAway, or returns when ctx ends.
func (e *passEnder) run(ctx context.Context) error {
	began := e.now()
	p := progress{moved: began, away: began}
	tick := time.NewTicker(passTick)
	defer tick.Stop()
	for {
		now := e.now()
		rows := e.board.view.all()
		p.note(now, rows, e.awaited())
		switch pass, working := e.pass(now, rows); {
		case p.silent != "" && now.Sub(p.away) >= e.once.Patience && (working == 0 || now.Sub(p.moved) >= e.once.Patience):
			return fmt.Errorf("%w of %s within %v; the next pass goes on", ErrAway, p.silent, e.once.Patience)
		case p.silent != "":
		case working == 0 && now.Sub(p.moved) >= e.once.Quiet, now.Sub(p.moved) >= e.once.StuckAfter:
			e.log.InfoContext(ctx, "the pass ends", slog.String("reason", pass.String()))
			e.once.Ended(pass)
			return errPassEnded
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch the pass: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// awaited names who has not answered yet, or does not answer now; empty if all do.
func (e *passEnder) awaited() string {
	if !e.contact.observed.Load() || e.contact.unreachable.Load() {
		return "Slurm"
	}
	answered := e.condition.lastAnswers()
	for name := range e.inForce.queues() {
		if answered[name].IsZero() {
			return "the server"
		}
	}
	if e.contact.failing.Load() {
		return "the server"
	}
	return ""
}

// pass counts the rows, and how many reasons there are to go on.
func (e *passEnder) pass(now time.Time, rows []*plan.Row) (pass Pass, working int) {
	for _, r := range rows {
		switch {
		case r.AtWork(now, e.once.Quiet):
			pass.Unfinished++
		case r.InFlight():
			pass.InSlurm++
		case r.Phase != plan.Done:
			pass.Waiting++
		}
		if r.Ails() {
			pass.Ailing++
		}
	}
	working = pass.Unfinished
	for name := range e.inForce.queues() {
		if most, blocked := e.board.reports.pending(name, now); blocked || most == report.Urgent {
			working++
		}
	}
	return pass, working
}

// progress notes when the rows of a pass last moved.
type progress struct {
	moved time.Time
	seen  []rowState
	// silent names who does not answer, and away is since when.
	silent string
	away   time.Time
}

// rowState is how far a row is.
type rowState struct {
	bundle   string
	phase    plan.Phase
	attempt  int
	reason   string
	progress string
}

// note notes the rows, and who does not answer.
func (p *progress) note(now time.Time, rows []*plan.Row, silent string) {
	seen := make([]rowState, 0, len(rows))
	for _, r := range rows {
		if r.Phase != plan.Done {
			seen = append(seen, rowState{r.Bundle, r.Phase, r.Attempt.Number, r.Reason, r.Progress})
		}
	}
	slices.SortFunc(seen, func(a, b rowState) int { return cmp.Compare(a.bundle, b.bundle) })
	if !slices.Equal(seen, p.seen) {
		p.seen, p.moved = seen, now
	}
	if (silent == "") != (p.silent == "") {
		p.away = now
		p.moved = now // what waited for the answer begins
	}
	p.silent = silent
}
