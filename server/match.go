package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// pending is a staged run that waits for a worker.
type pending struct {
	uuid      string
	ownerID   string
	resources codalab.Resources
	parents   map[[2]string]bool
	priority  int64
	created   time.Time
	status    string // staged_status
}

// offer is the room that a worker has for runs.
type offer struct {
	key          store.Worker
	tag          string
	exclusive    bool
	total        codalab.Resources // of CPUs, GPUs, memory, disk
	free         codalab.Resources
	runsLeft     int64
	running      int
	closed       bool // the worker takes no runs at all now
	dependencies map[[2]string]bool
	sharedDisk   bool
}

// match assigns staged runs to workers, and notes in the others why they wait. If no worker
// has more room than at the last call, only new runs can find a worker, and match tries only
// those, unless all is set. Only Run calls it.
func (s *Server) match(ctx context.Context, now time.Time, all bool) {
	candidates := s.fresh
	if s.hub.moreRoom() || all {
		candidates = s.pending
	}
	s.fresh = map[string]*pending{}
	if len(candidates) == 0 {
		return
	}
	offers := s.hub.offers(now)
	assigned, status := map[string]store.Worker{}, map[string]string{}
	var decided []string // in the order in which workers get their messages
	for _, p := range matchOrder(candidates) {
		o, why := choose(p, offers)
		switch {
		case o != nil:
			o.deduct(p.resources)
			assigned[p.uuid] = o.key
		case why != p.status:
			status[p.uuid] = why
		default:
			continue
		}
		decided = append(decided, p.uuid)
	}
	if len(decided) == 0 {
		return
	}
	changed, err := s.Store.ChangeAll(ctx, decided, func(b *store.Bundle) error {
		if worker, ok := assigned[b.UUID]; ok {
			assign(b, worker, now)
		} else if b.State == codalab.StateStaged {
			b.Metadata["staged_status"] = status[b.UUID]
		}
		return nil
	})
	s.logError(ctx, "match bundles with workers", err)
	var bundles []store.Bundle
	for _, uuid := range decided {
		if b, ok := changed[uuid]; ok {
			bundles = append(bundles, b)
		}
	}
	s.track(bundles...)
	if err == nil {
		s.fresh = map[string]*pending{} // match has tried those that still wait
	}
}

// queueTag returns the tag in a request_queue, which is "X" or "tag=X".
func queueTag(queue string) string {
	return strings.TrimPrefix(strings.TrimSpace(queue), "tag=")
}

// matchOrder sorts runs in the order in which match tries them. Runs are sorted by age. Then
// each owner's runs exchange their positions by priority, 0 by default. So a priority gives no
// owner an advantage over another (codalab/server/bundle_manager.py:
// _schedule_run_bundles_on_workers).
func matchOrder(runs map[string]*pending) []*pending {
	ordered := slices.SortedFunc(maps.Values(runs), func(a, b *pending) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.uuid, b.uuid))
	})
	owned := map[string][]*pending{}
	for _, p := range ordered {
		owned[p.ownerID] = append(owned[p.ownerID], p)
	}
	for _, own := range owned {
		slices.SortStableFunc(own, func(a, b *pending) int { return cmp.Compare(b.priority, a.priority) })
	}
	for i, p := range ordered {
		ordered[i], owned[p.ownerID] = owned[p.ownerID][0], owned[p.ownerID][1:]
	}
	return ordered
}

// choose returns a worker of the run's owner or of root that serves the run's queue and has
// room, or why there is none. It prefers workers as does codalab/server/bundle_manager.py:
// _filter_and_sort_workers.
func choose(p *pending, offers []*offer) (*offer, string) {
	var best *offer
	tag, queues, served := queueTag(p.resources.Tag), []string{}, []*offer{}
	for _, o := range offers {
		if o.key.User != p.ownerID && o.key.User != store.RootID {
			continue
		}
		if o.tag != "" && !slices.Contains(queues, o.tag) {
			queues = append(queues, o.tag)
		}
		if (tag != "" || o.exclusive) && o.tag != tag {
			continue
		}
		served = append(served, o)
		if o.runsLeft > 0 && fits(p.resources, o.free) && (best == nil || preferred(p, o, best)) {
			best = o
		}
	}
	if best == nil {
		return nil, whyWaiting(p, tag, queues, served)
	}
	return best, ""
}

func fits(want, have codalab.Resources) bool {
	return want.CPUs <= have.CPUs && want.GPUs <= have.GPUs && want.Memory <= have.Memory && want.Disk <= have.Disk
}

// preferred reports whether a run goes to a rather than b. It compares, in this order:
// tag-exclusive first, fewer free GPUs, more of the run's dependencies, fewer free CPUs, fewer
// runs.
func preferred(p *pending, a, b *offer) bool {
	missing := func(o *offer) int {
		n := 0
		for d := range p.parents {
			if !o.sharedDisk && !o.dependencies[d] {
				n++
			}
		}
		return n
	}
	if a.exclusive != b.exclusive {
		return a.exclusive
	}
	return cmp.Or(
		cmp.Compare(a.free.GPUs, b.free.GPUs),
		cmp.Compare(missing(a), missing(b)), cmp.Compare(a.free.CPUs, b.free.CPUs),
		cmp.Compare(a.running, b.running), strings.Compare(a.key.ID, b.key.ID),
	) < 0
}

// whyWaiting explains to the owner why no worker takes a run.
func whyWaiting(p *pending, tag string, queues []string, served []*offer) string {
	slices.Sort(queues)
	now := "none"
	if len(queues) > 0 {
		now = strings.Join(queues, ", ")
	}
	switch {
	case len(served) == 0 && tag != "":
		return fmt.Sprintf("No worker serves queue %s (queues now served: %s).", tag, now)
	case len(served) == 0:
		return fmt.Sprintf("No worker takes bundles that name no queue (queues now served: %s).", now)
	}
	worker := "No worker"
	if tag != "" {
		worker += " of queue " + tag
	}
	for _, o := range served {
		if fits(p.resources, o.total) || o.closed {
			return worker + " has room now; the bundle runs when one has."
		}
	}
	return fmt.Sprintf("%s is large enough for %s; the largest have %s.", worker, formatResources(p.resources), formatResources(largest(served)))
}

// largest is the maximum of each resource among the workers.
func largest(offers []*offer) codalab.Resources {
	var most codalab.Resources
	for _, o := range offers {
		most.CPUs = max(most.CPUs, o.total.CPUs)
		most.GPUs = max(most.GPUs, o.total.GPUs)
		most.Memory = max(most.Memory, o.total.Memory)
		most.Disk = max(most.Disk, o.total.Disk)
	}
	return most
}

func formatResources(r codalab.Resources) string {
	words := fmt.Sprintf("%d CPUs, %d GPUs, %s memory", r.CPUs, r.GPUs, codalab.FormatSize(r.Memory))
	if r.Disk > 0 {
		words += ", " + codalab.FormatSize(r.Disk) + " disk"
	}
	return words
}

// deduct reduces an offer by a run that goes to the worker.
func (o *offer) deduct(r codalab.Resources) {
	addResources(&o.free, r, -1)
	o.runsLeft--
	o.running++
}

// offers returns the room of each connected worker.
func (h *hub) offers(now time.Time) []*offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	var offers []*offer
	for _, w := range h.workers {
		if !w.known || w.info.IsTerminating || now.Sub(w.seen) > h.timeout {
			continue
		}
		o := &offer{
			key: w.key, tag: w.info.Tag, exclusive: w.info.TagExclusive, sharedDisk: w.info.SharedFileSystem,
			total:    codalab.Resources{CPUs: w.info.CPUs, GPUs: w.info.GPUs, Memory: w.info.MemoryBytes, Disk: w.info.FreeDiskBytes},
			runsLeft: w.info.ExitAfterNumRuns, closed: w.info.ExitAfterNumRuns <= 0, dependencies: map[[2]string]bool{},
		}
		if o.runsLeft >= codalab.UnlimitedRuns {
			o.runsLeft = math.MaxInt64
		}
		o.runsLeft -= w.unclaimed // the worker itself counts the claimed runs
		o.running = len(w.runs)
		o.free = o.total
		addResources(&o.free, w.used, -1)
		for _, d := range w.info.Dependencies {
			o.dependencies[d] = true
		}
		offers = append(offers, o)
	}
	return offers
}
