package hub

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

// LastSeen is the last check-in of a queue, without reports and dependencies. Group is the uuid of the group that it serves; empty for
// none.
type LastSeen struct {
	Worker  plan.Worker
	Group   string
	CheckIn codalab.CheckIn
	At      time.Time
}

// RememberQueues is the time for which the hub remembers a queue that is away.
const RememberQueues = 7 * 24 * time.Hour

// mostAway bounds the queues of one user that are away.
const mostAway = 100

// Restore tells the hub of queues that an earlier life of the server knew. They are away until they check in.
func (h *Hub) Restore(queues ...LastSeen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range queues {
		if w := h.workers[q.Worker]; w == nil || !w.known {
			h.noteAway(q)
		}
	}
}

// rememberAway remembers a worker that has gone, if it is a queue and has not said that it ends. The caller holds h.mu.
func (h *Hub) rememberAway(w *worker) {
	if w.known && w.last.Queue != nil && !w.last.IsTerminating {
		h.noteAway(w.lastSeen())
	}
}

// noteAway notes a queue that is away. Of too many queues of one user it forgets the one that has been away for longest.
// The caller holds h.mu.
func (h *Hub) noteAway(q LastSeen) {
	h.gone[q.Worker] = q
	count, oldest := 0, q
	for key, other := range h.gone {
		if key.User != q.Worker.User {
			continue
		}
		count++
		if other.At.Before(oldest.At) {
			oldest = other
		}
	}
	if count > mostAway {
		delete(h.gone, oldest.Worker)
	}
}

// awayQueues returns the queues that are away. The caller holds h.mu.
func (h *Hub) awayQueues(now time.Time) (all []plan.Capacity) {
	for _, q := range h.seenQueues(now) {
		if w := h.workers[q.Worker]; w != nil && h.connected(w, now) {
			continue
		}
		w := worker{key: q.Worker, last: q.CheckIn, group: q.Group}
		c := w.room()
		c.AwaySince = q.At
		all = append(all, c)
	}
	return all
}

// SeenQueues returns the last check-ins of all queues that are there or away, in the order of their users and ids.
func (h *Hub) SeenQueues(now time.Time) []LastSeen {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seenQueues(now)
}

// seenQueues is SeenQueues for a caller that holds h.mu. A queue is over, and not away, if its bridge is there without
// it.
func (h *Hub) seenQueues(now time.Time) (seen []LastSeen) {
	type bridge struct{ user, instance string }
	there := map[bridge]bool{}
	var away []LastSeen
	for _, w := range h.workers {
		if !w.known || w.last.Queue == nil || w.last.IsTerminating {
			continue
		}
		if h.connected(w, now) {
			there[bridge{w.key.User, w.last.Instance}] = true
			seen = append(seen, w.lastSeen())
		} else {
			away = append(away, w.lastSeen())
		}
	}
	for _, q := range slices.AppendSeq(away, maps.Values(h.gone)) {
		if now.Sub(q.At) <= RememberQueues && !there[bridge{q.Worker.User, q.CheckIn.Instance}] {
			seen = append(seen, q)
		}
	}
	slices.SortFunc(seen, func(a, b LastSeen) int {
		return cmp.Or(strings.Compare(a.Worker.User, b.Worker.User), strings.Compare(a.Worker.ID, b.Worker.ID))
	})
	return seen
}

// lastSeen returns the worker's last check-in, without its dependencies: they are of no use while it is away.
func (w *worker) lastSeen() LastSeen {
	in := w.last
	in.Dependencies = nil
	return LastSeen{Worker: w.key, Group: w.group, CheckIn: in, At: w.seen}
}
