package server

import (
	"cmp"
	"context"
	"fmt"
	"math"
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
	serves       clientele
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
	s.hub.setStaged(len(s.pending))
	if len(candidates) == 0 {
		return
	}
	defer func() { s.metrics.passes.Observe(s.Now().Sub(now).Seconds()) }()
	offers, held := s.hub.offers(now)
	places, err := s.placesFor(ctx, candidates, offers, held)
	if err != nil {
		s.logError(ctx, "match bundles with workers", err)
		return
	}
	assigned, status := map[string]store.Worker{}, map[string]string{}
	var decided []string // in the order in which workers get their messages
	for p := range fairOrder(candidates, held) {
		o, why := places.choose(p)
		switch {
		case o != nil:
			o.deduct(p.resources)
			held.add(p.ownerID, o)
			assigned[p.uuid] = o.key
		case why != p.status:
			status[p.uuid] = why
		default:
			continue
		}
		decided = append(decided, p.uuid)
	}
	s.decide(ctx, now, decided, assigned, status)
}

// decide stores what match has decided: the workers of runs, and the status of those that wait.
func (s *Server) decide(ctx context.Context, now time.Time, decided []string, assigned map[string]store.Worker, status map[string]string) {
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

// offers returns the room of each connected worker, and the runs that all workers have.
func (h *hub) offers(now time.Time) ([]*offer, held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var offers []*offer
	runs := held{}
	for _, w := range h.workers {
		for _, run := range w.runs {
			runs.add(run.ownerID, &offer{key: w.key})
		}
		if !w.known || w.info.IsTerminating || now.Sub(w.seen) > h.timeout {
			continue
		}
		o := &offer{
			key: w.key, serves: clientele{group: w.group}, tag: w.info.Tag, exclusive: w.info.TagExclusive, sharedDisk: w.info.SharedFileSystem,
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
	return offers, runs
}
