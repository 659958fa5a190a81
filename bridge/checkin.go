package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/report"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

const (
	// urgentPause is the pause before a run's new state is reported, so that one check-in can
	// report several; otherPause is the pause before other news is.
	urgentPause = 20 * time.Millisecond
	otherPause  = 2 * time.Second
	// pausePerRun is a pause for each run of a check-in with new states, from that one to the next one, up to mostPause: while hundreds of
	// short runs begin and end, a report then passes over states of a run that are over.
	pausePerRun = 5 * time.Millisecond
	mostPause   = 250 * time.Millisecond
	// mostUnanswered bounds the check-ins of one queue that wait for an answer: CodaLab's own
	// server has 50 threads in all, and each held check-in takes one for 5 s. Four are enough
	// for one that waits for messages and one for each of the three states of a short run.
	// Reports that are only old leave one of them to the urgent ones. News that is not urgent
	// goes out only while at most one check-in is unanswered.
	mostUnanswered, mostUnansweredForOld, mostUnansweredForOther = 4, 3, 2
	// proofPause is the pause between two calls of Prove.
	proofPause = 200 * time.Millisecond
	// slowAnswer is the age at which an unanswered check-in makes the bridge send another one, so that the
	// reports do not become too old.
	slowAnswer = report.RefreshEvery + 5*time.Second
	// agePause is the pause between two checks of the reports' ages, while a check-in is unanswered
	// and there is nothing to report.
	agePause = 5 * time.Second
	// idlePause is the pause after an empty answer that came at once, from a server that does
	// not hold check-ins.
	idlePause = time.Second
	// maxPause is the longest pause after failures in a row.
	maxPause = 30 * time.Second
)

// checkIns are the check-ins of one queue.
type checkIns struct {
	queueWorkers *queueWorkers
	replier      *replier
	contact      *contact
	condition    *condition
	answerPause  time.Duration // after an answer without messages; 0 for the usual one
	group        *errgroup.Group
	queue        plan.Queue
	now          func() time.Time
	log          *slog.Logger

	next time.Time // when to check in; zero for never
	// answers receives the answers to check-ins. unanswered counts the check-ins without an answer. newest
	// is the number of the newest check-in while it is unanswered; else 0.
	answers    chan answer
	unanswered int
	newest     int64
	// quietUntil is the time until which new states wait for others (pausePerRun).
	quietUntil time.Time
	// proving is set while proofs are asked for; proved receives when that has ended.
	proving bool
	proved  chan struct{}
	// failures counts the failures in a row. answered is set once the server has answered a
	// check-in: if it refuses the first one, the operator has to act.
	failures int
	answered bool
	// denied is the time since which the server refuses the login; zero while it does not. After deniedFor the
	// bridge ends, unless that is 0.
	denied    time.Time
	deniedFor time.Duration
	// standalone is set for a stand-alone worker.
	standalone bool
}

// run keeps the queue checked in until ctx ends: the server holds a check-in until it has a
// message. The newest check-in gets the message, so the bridge sends the next one as soon as
// the newest is answered. It sends one earlier when there is something new to report (package
// report has the rules).
func (c *checkIns) run(ctx context.Context) error {
	changes := c.queueWorkers.board.reports.changes(c.queue.Name)
	c.checkInWithin(0)
	for {
		var urgentNow, otherNow <-chan struct{}
		if c.mayOverlap(mostUnanswered) {
			urgentNow = changes.urgent
		}
		if c.mayOverlap(mostUnansweredForOther) {
			otherNow = changes.other
		}
		var due <-chan time.Time
		if !c.next.IsZero() {
			due = time.NewTimer(c.next.Sub(c.now())).C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-urgentNow:
			c.checkInWithin(max(urgentPause, c.busyPause()))
		case <-otherNow:
			c.checkInWithin(otherPause)
		case <-c.proved:
			c.endProving(ctx)
		case <-due:
			c.next = time.Time{}
			c.checkInIfDue(ctx)
		case a := <-c.answers:
			if err := c.handleAnswer(ctx, a); err != nil {
				return err
			}
		}
	}
}

type answer struct {
	number   int64
	messages []codalab.Message
	err      error
	took     time.Duration
}

// checkInWithin sets the time of the next check-in, unless it is set for an earlier time.
func (c *checkIns) checkInWithin(wait time.Duration) {
	if at := c.now().Add(wait); c.next.IsZero() || at.Before(c.next) {
		c.next = at
	}
}

// mayOverlap reports whether another check-in may be sent while fewer than most are unanswered.
func (c *checkIns) mayOverlap(most int) bool {
	return c.answered && c.failures == 0 && c.unanswered < most
}

// checkInIfDue checks in if the newest check-in is answered, or if there is something to
// report.
func (c *checkIns) checkInIfDue(ctx context.Context) {
	pending, blocked := c.queueWorkers.board.reports.pending(c.queue.Name, c.now())
	if blocked {
		c.prove(ctx)
	}
	// This holds after a failure too: the newest check-in may hang for longer than a report
	// stays good.
	if c.newest == 0 || c.answered && c.unanswered < unansweredBelow(pending) {
		c.pauseFor(pending, c.send(ctx))
		return
	}
	c.checkInWithin(agePause) // nothing else notices a report that becomes old
}

// pauseFor sets the pause after a check-in with these reports, for which they were as urgent as that. If it had no room for all new states,
// the next one follows at once.
func (c *checkIns) pauseFor(pending report.Urgency, reports int) {
	c.quietUntil = time.Time{}
	if pending != report.Urgent || reports == 0 {
		return
	}
	if left, _ := c.queueWorkers.board.reports.pending(c.queue.Name, c.now()); left < report.Urgent {
		c.quietUntil = c.now().Add(min(time.Duration(reports)*pausePerRun, mostPause))
	}
}

// unansweredBelow returns below how many unanswered check-ins another one is sent for something to report.
func unansweredBelow(how report.Urgency) int {
	switch how {
	case report.None:
	case report.Words:
		return mostUnansweredForOther
	case report.Old:
		return mostUnansweredForOld
	case report.Urgent:
		return mostUnanswered
	}
	return 0
}

// send checks in, in the background, and returns the number of runs that it reports.
func (c *checkIns) send(ctx context.Context) int {
	in, number := c.queueWorkers.checkIn(c.inForce())
	c.unanswered++
	c.newest = number
	c.checkInWithin(slowAnswer)
	c.group.Go(func() error {
		start := c.now()
		messages, err := c.queueWorkers.send(ctx, c.queue.Name, in)
		select {
		case c.answers <- answer{number, messages, err, c.now().Sub(start)}:
		case <-ctx.Done():
			c.queueWorkers.noteUnanswered(c.queue, number, ctx.Err())
		}
		return nil
	})
	return len(in.Reports)
}

// inForce returns the queue as it is in force now.
func (c *checkIns) inForce() plan.Queue {
	if q, ok := c.queueWorkers.inForce.queues()[c.queue.Name]; ok {
		return q
	}
	return c.queue
}

// prove asks the server in the background for the proofs that newer reports wait for, until
// none is missing.
func (c *checkIns) prove(ctx context.Context) {
	if c.proving {
		return
	}
	c.proving = true
	c.group.Go(func() error {
		for left := true; left; {
			left = c.queueWorkers.prove(ctx, c.queue) && pause.For(ctx, proofPause) == nil
		}
		select {
		case c.proved <- struct{}{}:
		case <-ctx.Done():
		}
		return nil
	})
}

// endProving notes that no proof was missing, and begins again if one is missing now.
func (c *checkIns) endProving(ctx context.Context) {
	c.proving = false
	if len(c.queueWorkers.board.reports.unproven(c.queue.Name)) > 0 {
		c.prove(ctx)
	}
}

// handleAnswer handles an answer, and sets the time of the next check-in.
func (c *checkIns) handleAnswer(ctx context.Context, a answer) error {
	c.unanswered--
	newest := c.newest == a.number
	if newest {
		c.newest = 0
	}
	if a.err != nil {
		if c.queueWorkers.noteUnanswered(c.queue, a.number, a.err) {
			c.log.WarnContext(ctx, "the server refuses so large a check-in; the bridge reports fewer runs in each", errorAttr(a.err))
			c.checkInWithin(0)
			return nil
		}
		c.condition.server(c.now(), c.queue.Name, a.err)
		return c.failed(ctx, a.err)
	}
	c.condition.server(c.now(), c.queue.Name, nil)
	c.queueWorkers.noteAnswer(c.queue, a.number, a.messages)
	for _, m := range a.messages {
		c.startReply(ctx, m)
	}
	c.failures, c.answered, c.denied = 0, true, time.Time{}
	c.contact.noteAnswer(c.now())
	switch {
	case newest && len(a.messages) == 0 && c.answerPause > 0:
		c.checkInWithin(c.answerPause)
	case newest && len(a.messages) == 0 && a.took < idlePause:
		c.checkInWithin(idlePause)
	case newest && slices.ContainsFunc(a.messages, isRun): // the server may have more
		c.checkInWithin(0)
	case newest:
		c.checkInWithin(c.busyPause())
	default: // reports that waited for this answer can go out
		c.checkInWithin(max(urgentPause, c.busyPause()))
	}
	return nil
}

func isRun(m codalab.Message) bool { return m.Type == codalab.MessageRun }

// busyPause returns what is left of the pause after the last check-in.
func (c *checkIns) busyPause() time.Duration { return max(c.quietUntil.Sub(c.now()), 0) }

// failed handles a check-in without an answer. Its error ends the bridge.
func (c *checkIns) failed(ctx context.Context, err error) error {
	c.failures++
	c.contact.failing.Store(true)
	if refused, ok := errors.AsType[*codalab.Error](err); ok && c.standalone && refused.Status == http.StatusGone {
		c.contact.replaced.Store(refused) // ender ends the worker, and there are no more check-ins
		return nil
	}
	if refused, ok := errors.AsType[*codalab.Error](err); ok && !refused.Transient() && (!c.answered || c.isDenied(refused)) {
		return fmt.Errorf("check in queue %s: %w", c.queue.Name, err)
	}
	if c.failures == 1 {
		c.log.WarnContext(ctx, "the server did not take the check-in; it is tried again", errorAttr(err))
	}
	c.checkInWithin(min(time.Second<<min(c.failures-1, 5), maxPause))
	return nil
}

// isDenied reports whether the server has refused the login for deniedFor.
func (c *checkIns) isDenied(refused *codalab.Error) bool {
	if c.deniedFor == 0 || refused.Status != http.StatusUnauthorized {
		return false
	}
	if c.denied.IsZero() {
		c.denied = c.now()
	}
	return c.now().Sub(c.denied) >= c.deniedFor
}

// startReply replies to a message that asks for a bundle's files, in the background.
func (c *checkIns) startReply(ctx context.Context, m codalab.Message) {
	switch m.Type {
	case codalab.MessageRun, codalab.MessageKill, codalab.MessageMarkFinalized: // queueWorkers.noteAnswer has them
	case codalab.MessageRead, codalab.MessageWrite, codalab.MessageNetcat:
		c.group.Go(func() error {
			c.replier.reply(ctx, c.queue, m)
			return nil
		})
	}
}
