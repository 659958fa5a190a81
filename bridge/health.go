package bridge

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// health is what the bridge has seen of the queues and of the nodes. Only Step uses it.
type health struct {
	names  []string // of the queues, in order
	queues map[string]*plan.Health
	nodes  plan.Nodes
	told   map[string]string // why each queue is held up, as its rows were told
}

func newHealth(queues map[string]plan.Queue) health {
	h := health{slices.Sorted(maps.Keys(queues)), map[string]*plan.Health{}, plan.Nodes{}, map[string]string{}}
	for _, name := range h.names {
		h.queues[name] = &plan.Health{}
	}
	return h
}

// of is the health of a queue. A row may be of a queue that is no longer configured.
func (h health) of(queue string) *plan.Health {
	if q := h.queues[queue]; q != nil {
		return q
	}
	return &plan.Health{}
}

// examine adds to a row's news what the health of its queue says about it.
func (b *Bridge) examine(now time.Time, r plan.Row, n *plan.News) {
	h := b.health.of(r.Queue)
	h.Judge(now, r, n)
	if held := h.Held(b.Policy.Queues[r.Queue]); held != r.Held && r.Phase != plan.Done {
		n.Held = &held
	}
}

// tellHeld tells the rows of a queue that wait for their submission when the reason for which the
// queue is held up has changed.
func (b *Bridge) tellHeld(ctx context.Context, now time.Time) {
	for _, name := range b.health.names {
		held, before := b.health.of(name).Held(b.Policy.Queues[name]), b.health.told[name]
		switch held {
		case before:
			continue
		case "":
			delete(b.health.told, name)
			b.Log.InfoContext(ctx, "the queue goes on", slog.String("queue", name))
		default:
			b.health.told[name] = held
			b.Log.WarnContext(ctx, "a queue is held up", slog.String("queue", name), slog.String("reason", held))
		}
		for _, bundle := range slices.Sorted(maps.Keys(b.rows.staged[name])) {
			b.inbox.put(bundle, nothing)
		}
	}
	b.beat.health(now, b.health)
}

// nextProbe is when a row of some queue that is held up may be submitted.
func (b *Bridge) nextProbe() (time.Time, bool) {
	var next time.Time
	for name := range b.rows.staged {
		if at := b.health.of(name).NextProbe(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, !next.IsZero()
}
