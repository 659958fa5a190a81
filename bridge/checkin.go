package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

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

// reports holds what the check-ins of each queue tell of its rows.
type reports struct {
	mu     sync.Mutex
	queues map[string]*queueReports
}

type queueReports struct {
	runs map[string]codalab.Run
	// changed holds a token when a check-in would tell something new.
	changed chan struct{}
}

func (r *reports) queue(name string) *queueReports {
	if r.queues == nil {
		r.queues = map[string]*queueReports{}
	}
	q := r.queues[name]
	if q == nil {
		q = &queueReports{runs: map[string]codalab.Run{}, changed: make(chan struct{}, 1)}
		r.queues[name] = q
	}
	return q
}

func (r *reports) set(queue string, run codalab.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queue(queue)
	old, ok := q.runs[run.UUID]
	q.runs[run.UUID] = run
	if ok && reflect.DeepEqual(withoutUsage(old), withoutUsage(run)) {
		return
	}
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// withoutUsage is what of a report is worth a check-in of its own: usage goes
// with the next one, however many runs there are.
func withoutUsage(run codalab.Run) codalab.Run {
	run.ContainerTimeTotal, run.ContainerTimeUser, run.ContainerTimeSystem = 0, 0, 0
	run.CPUUsage, run.MemoryUsage, run.DiskUtilization = 0, 0, 0
	return run
}

func (r *reports) drop(queue, bundle string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.queue(queue).runs, bundle)
}

// list returns the reports of a queue, in the order of their bundles.
func (r *reports) list(queue string) []codalab.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.queue(queue).runs
	out := make([]codalab.Run, 0, len(runs))
	for _, bundle := range slices.Sorted(maps.Keys(runs)) {
		out = append(out, runs[bundle])
	}
	return out
}

func (r *reports) changed(queue string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue(queue).changed
}

const (
	// checkInPause keeps a burst of changes to one check-in.
	checkInPause = 20 * time.Millisecond
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
func (b *Bridge) checkingIn(ctx context.Context, q plan.Queue) error {
	c := &checkIns{bridge: b, queue: q, answers: make(chan answer), sequence: time.Now().UnixMicro()} //nolint:forbidigo // a start that is above that of the bridge's last life
	changed := b.reports.changed(q.Name)
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
			next.Reset(checkInPause)
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

// checkIns is the conversation of one identity.
type checkIns struct {
	bridge      *Bridge
	queue       plan.Queue
	answers     chan answer
	sequence    int64
	outstanding int
	failures    int
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
	in := codalab.CheckIn{
		Tag: c.queue.Tag, TagExclusive: !c.queue.Default, Hostname: b.Hostname, Runs: b.reports.list(c.queue.Name),
		CPUs: boundlessCPUs, GPUs: boundlessGPUs, MemoryBytes: boundlessBytes, FreeDiskBytes: boundlessBytes,
		Dependencies: [][2]string{}, ExitAfterNumRuns: codalab.UnlimitedRuns, Sequence: c.sequence,
	}
	b.effects.group.Go(func() error {
		start := time.Now() //nolint:forbidigo // how long the server held it decides the pause
		got, err := b.Service.CheckIn(ctx, b.identity(c.queue.Name), in)
		select {
		case c.answers <- answer{got, err, time.Since(start)}: //nolint:forbidigo // as above
		case <-ctx.Done():
		}
		return nil
	})
}

// answered takes an answer in. It says whether to check in again, after which
// pause: not while another call that tells at least as much is held.
func (c *checkIns) answered(ctx context.Context, a answer) (again bool, pause time.Duration, err error) {
	c.outstanding--
	for _, m := range a.Messages {
		c.bridge.deliver(ctx, c.queue, m)
	}
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

// deliver brings a message to its row, or answers it here where it asks for a
// file.
func (b *Bridge) deliver(ctx context.Context, q plan.Queue, m codalab.Message) {
	switch m.Type {
	case codalab.MessageRun:
		if m.Bundle != nil && codalab.IsUUID(m.Bundle.UUID) {
			b.inbox.offer(offer{queue: q.Name, message: m})
		}
	case codalab.MessageKill, codalab.MessageMarkFinalized:
		b.inbox.put(m.UUID, func(n *plan.News) { n.Messages = append(n.Messages, m) })
	case codalab.MessageRead, codalab.MessageWrite, codalab.MessageNetcat:
		b.effects.group.Go(func() error {
			b.serve(ctx, q, m)
			return nil
		})
	default:
		b.Log.WarnContext(ctx, "the server sent a message of an unknown kind", slog.String("kind", string(m.Type)))
	}
}
