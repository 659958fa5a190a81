package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// A bridge's identities report more than any request asks for, so that it is
// the bridge, which can say why, and not the server that refuses one.
const (
	boundlessCPUs  = 1_000_000
	boundlessGPUs  = 10_000
	boundlessBytes = 1_000_000_000_000_000
)

// CheckIn is what a queue's identity tells the server now. A check-in of a
// higher sequence is the newer one.
func (b *Bridge) CheckIn(q plan.Queue, sequence int64) codalab.CheckIn {
	in := codalab.CheckIn{
		Tag: q.Tag, TagExclusive: !q.Default, Hostname: b.Hostname, Runs: b.view.reports(q.Name, b.Identity(q.Name)),
		CPUs: boundlessCPUs, GPUs: boundlessGPUs, MemoryBytes: boundlessBytes, FreeDiskBytes: boundlessBytes,
		Dependencies: [][2]string{}, ExitAfterNumRuns: codalab.UnlimitedRuns, Sequence: sequence,
		SharedFileSystem: b.SharedDisk,
	}
	if b.view.low.Load() { // no server gives out a bundle then
		in.CPUs, in.FreeDiskBytes, in.ExitAfterNumRuns = 0, 0, 0
	}
	return in
}

// Changes receives when a check-in of a queue's identity would tell something
// new.
func (b *Bridge) Changes(q plan.Queue) <-chan struct{} { return b.view.news(q.Name) }

// InFlight says whether a row may have a job in Slurm.
func (b *Bridge) InFlight() bool { return b.view.anyInFlight() }

// Observed says whether Slurm has been seen as a whole since the start.
func (b *Bridge) Observed() bool { return b.view.observed.Load() }

// Deliver takes the server's messages to a queue's identity in, those that are
// a matter for a row.
func (b *Bridge) Deliver(q plan.Queue, messages []codalab.Message) {
	if len(messages) > 0 {
		b.inbox.deliver(q.Name, messages)
	}
}

const (
	// checkInPause keeps a burst of changes to one check-in. Each tells of all
	// bundles: with many of them the pause is checkInShare of the time that it
	// takes to write them down, up to maxCheckInPause.
	checkInPause    = 20 * time.Millisecond
	checkInShare    = 40
	maxCheckInPause = time.Second
	// idlePause is the pause after an empty answer that came at once, from a
	// server that does not hold check-ins.
	idlePause = time.Second
	// maxPause is the longest pause after failures in a row.
	maxPause = 30 * time.Second
)

// checkingIn keeps one identity checked in: one call is held by the server
// until there is a message. When there is something new to tell meanwhile,
// and the server takes check-ins that overtake one another, another call
// tells it at once and ends the held one; else it waits its turn.
func (b *Bridge) checkingIn(ctx context.Context, g *errgroup.Group, q plan.Queue) error {
	c := &checkIns{bridge: b, group: g, queue: q, answers: make(chan answer), sequence: b.Now().UnixMicro()} // above that of the bridge's last life
	changed := b.Changes(q)
	next := time.NewTimer(0) // when to check in
	defer next.Stop()
	soon := true // next is set for the moment
	for {
		var news <-chan struct{}
		if !soon && c.concurrent && c.outstanding < 2 && c.failures == 0 {
			news = changed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
			soon = true
			next.Reset(newsPause(c.effort))
		case <-next.C:
			soon = false
			c.send(ctx)
		case a := <-c.answers:
			again, pause, err := c.answered(ctx, a)
			if err != nil {
				return err
			}
			if again && !soon {
				next.Reset(pause)
			}
		}
	}
}

// newsPause is how long news waits for more of it, when the last check-in took
// that long to write.
func newsPause(effort time.Duration) time.Duration {
	return min(max(checkInPause, checkInShare*effort), maxCheckInPause)
}

// checkIns is the conversation of one identity.
type checkIns struct {
	bridge      *Bridge
	group       *errgroup.Group
	queue       plan.Queue
	answers     chan answer
	sequence    int64
	outstanding int
	failures    int
	effort      time.Duration // what the last check-in took to write
	// concurrent says that the server takes check-ins that overtake one
	// another, welcome that it has taken one at all: a refusal before that is
	// the operator's to mend.
	concurrent, welcome bool
}

type answer struct {
	codalab.CheckInAnswer
	err  error
	took time.Duration
}

// send checks in, in the background.
func (c *checkIns) send(ctx context.Context) {
	b := c.bridge
	c.sequence++
	c.outstanding++
	start := b.Now()
	in := b.CheckIn(c.queue, c.sequence)
	c.effort = b.Now().Sub(start)
	c.group.Go(func() error {
		start := b.Now()
		got, err := b.Service.CheckIn(ctx, b.Identity(c.queue.Name), in)
		select {
		case c.answers <- answer{got, err, b.Now().Sub(start)}:
		case <-ctx.Done():
		}
		return nil
	})
}

// answered takes an answer in. It says whether to check in again, after which
// pause: not while another call that tells at least as much is held.
func (c *checkIns) answered(ctx context.Context, a answer) (again bool, pause time.Duration, err error) {
	c.outstanding--
	c.bridge.Deliver(c.queue, a.Messages)
	for _, m := range a.Messages {
		c.serve(ctx, m)
	}
	c.bridge.pulse.server(c.queue.Name, a.err)
	if a.err != nil {
		c.failures++
		var refused *codalab.Error
		if errors.As(a.err, &refused) && !refused.Transient() && !c.welcome {
			return false, 0, fmt.Errorf("check in queue %s: %w", c.queue.Name, a.err)
		}
		if c.failures == 1 {
			c.bridge.Log.WarnContext(ctx, "the server did not take the check-in; it is tried again", errorAttr(a.err))
		}
		pause = min(time.Second<<min(c.failures-1, 5), maxPause)
	} else {
		c.failures, c.concurrent, c.welcome = 0, a.Concurrent, true
		if len(a.Messages) == 0 && a.took < idlePause && c.outstanding == 0 {
			pause = idlePause
		}
	}
	// What failed has told nothing, and is told again.
	return c.outstanding == 0 || a.err != nil, pause, nil
}

// serve answers a message that asks for a bundle's files.
func (c *checkIns) serve(ctx context.Context, m codalab.Message) {
	switch m.Type {
	case codalab.MessageRun, codalab.MessageKill, codalab.MessageMarkFinalized: // Deliver's
	case codalab.MessageRead, codalab.MessageWrite, codalab.MessageNetcat:
		c.group.Go(func() error {
			c.bridge.serve(ctx, c.queue, m)
			return nil
		})
	default:
		c.bridge.Log.WarnContext(ctx, "the server sent a message of an unknown kind", slog.String("kind", string(m.Type)))
	}
}
