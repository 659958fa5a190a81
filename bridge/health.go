package bridge

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// health has the health of the queues and of the nodes. Only Step uses it.
type health struct {
	configured map[string]plan.Queue
	names      []string // of the queues, in order
	queues     map[string]*plan.Health
	nodes      plan.Nodes
	told       map[string]string // why each queue is held up, as its rows were told
}

func newHealth(queues map[string]plan.Queue) *health {
	h := &health{configured: queues, names: slices.Sorted(maps.Keys(queues)), queues: map[string]*plan.Health{}, nodes: plan.Nodes{}, told: map[string]string{}}
	for _, name := range h.names {
		h.queues[name] = &plan.Health{}
	}
	return h
}

// follow lets the health follow queues that have come or gone. Those that stay keep theirs.
func (h *health) follow(queues map[string]plan.Queue) {
	h.configured, h.names = queues, slices.Sorted(maps.Keys(queues))
	for name := range h.queues {
		if _, ok := queues[name]; !ok {
			delete(h.queues, name)
			delete(h.told, name)
		}
	}
	for _, name := range h.names {
		if h.queues[name] == nil {
			h.queues[name] = &plan.Health{}
		}
	}
}

// of returns the health of a queue. A row may be of a queue that is no longer configured.
func (h *health) of(queue string) *plan.Health {
	if q := h.queues[queue]; q != nil {
		return q
	}
	return &plan.Health{}
}

// examine adds to a row's news what the health of its queue says about it.
func (h *health) examine(now time.Time, r *plan.Row, n *plan.News) {
	of := h.of(r.Queue)
	of.Judge(now, *r, n)
	if held := of.Held(h.configured[r.Queue]); held != r.Held && r.Phase != plan.Done {
		n.Held = &held
	}
}

// learn learns from a decision.
func (h *health) learn(now time.Time, before, after *plan.Row) {
	h.of(before.Queue).Learn(now, *before, *after, h.nodes)
}

// changed returns the queues that are held up for another reason than their rows were told, or no longer,
// and counts them as told.
func (h *health) changed(ctx context.Context, logger *slog.Logger) []string {
	var queues []string
	for _, name := range h.names {
		held, before := h.of(name).Held(h.configured[name]), h.told[name]
		switch held {
		case before:
			continue
		case "":
			delete(h.told, name)
			logger.InfoContext(ctx, "the queue goes on", slog.String("queue", name))
		default:
			h.told[name] = held
			logger.WarnContext(ctx, "a queue is held up", slog.String("queue", name), slog.String("reason", held))
		}
		queues = append(queues, name)
	}
	return queues
}

// nextProbe returns when a row of some of the queues that is held up may be submitted.
func (h *health) nextProbe(queues map[string]map[string]*entry) (time.Time, bool) {
	var next time.Time
	for name := range queues {
		if at := h.of(name).NextProbe(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, !next.IsZero()
}
