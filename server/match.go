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
	// asksDisk and asksTime are set if the run itself requests them.
	asksDisk, asksTime bool

	parents  map[[2]string]bool
	priority int64
	created  time.Time
	status   string // staged_status
}

// offer is the room that a worker has for runs.
type offer struct {
	key          store.Worker
	tag          string
	exclusive    bool
	serves       clientele
	total        codalab.Resources   // of CPUs, GPUs, memory, disk
	nodes        []codalab.Resources // of which a run needs one (codalab.CheckIn.Nodes); empty for the whole worker
	free         codalab.Resources
	runsLeft     int64
	secondsLeft  int64 // how long the worker still runs; 0 if it does not say
	running      int
	closed       bool   // the worker takes no runs at all now
	whyClosed    string // empty if it does not say
	dependencies map[[2]string]bool
	sharedDisk   bool
}

// match assigns staged runs to workers, and notes in the others why they wait. If no worker
// has more room than at the last call, only new runs can find a worker, and match tries only
// those, unless all is set. Only Run calls it.
func (s *Server) match(ctx context.Context, now time.Time, all bool) {
	s.hub.setStaged(len(s.pending))
	if len(s.pending) == 0 || len(s.fresh) == 0 && !all && !s.hub.moreRoom() {
		return
	}
	defer func() { s.metrics.passes.Observe(s.Now().Sub(now).Seconds()) }()
	offers, held, more := s.hub.offers(now)
	candidates := s.fresh
	if more || all {
		candidates = s.pending
	}
	s.fresh = map[string]*pending{}
	failed, err := s.resourceFailures(ctx, candidates)
	if err != nil {
		s.logError(ctx, "check the quotas of waiting bundles", err)
		return
	}
	places, err := s.placesFor(ctx, candidates, offers, held)
	if err != nil {
		s.logError(ctx, "match bundles with workers", err)
		return
	}
	d := decisions{workers: map[string]store.Worker{}, failed: failed, status: map[string]string{}}
	for p := range fairOrder(candidates, held) {
		if failed[p.uuid] != "" {
			d.order = append(d.order, p.uuid)
			continue
		}
		o, why := places.choose(p)
		switch {
		case o != nil:
			o.deduct(p.resources)
			held.add(p.ownerID, o)
			d.workers[p.uuid] = o.key
		case why != p.status:
			d.status[p.uuid] = why
		default:
			continue
		}
		d.order = append(d.order, p.uuid)
	}
	s.applyDecisions(ctx, now, d)
}

// decisions are what match has decided about runs, by uuid: their worker, why they fail, or why they
// wait.
type decisions struct {
	order          []string // in which workers get their messages
	workers        map[string]store.Worker
	failed, status map[string]string
}

// applyDecisions writes decisions into the bundles.
func (s *Server) applyDecisions(ctx context.Context, now time.Time, d decisions) {
	if len(d.order) == 0 {
		return
	}
	changed, err := s.Store.ChangeAll(ctx, d.order, func(b *store.Bundle) error {
		worker, assigned := d.workers[b.UUID]
		switch {
		case assigned:
			assign(b, worker, now)
		case b.State != codalab.StateStaged:
		case d.failed[b.UUID] != "":
			setFailed(b, d.failed[b.UUID])
		default:
			b.Metadata["staged_status"] = d.status[b.UUID]
		}
		return nil
	})
	s.logError(ctx, "match bundles with workers", err)
	var bundles []store.Bundle
	for _, uuid := range d.order {
		if b, ok := changed[uuid]; ok {
			bundles = append(bundles, b)
		}
	}
	s.track(bundles...)
	if len(d.failed) > 0 {
		s.changed(slices.Collect(maps.Keys(d.failed))...) // their children fail too
	}
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

// sizes are what one run can get of the worker at most.
func (o *offer) sizes() []codalab.Resources {
	if len(o.nodes) > 0 {
		return o.nodes
	}
	return []codalab.Resources{o.total}
}

// largeEnough reports whether the worker, when it is idle, can take a run.
func (o *offer) largeEnough(p *pending) bool {
	return slices.ContainsFunc(o.sizes(), func(size codalab.Resources) bool { return fits(p.resources, size) })
}

// refusesItself reports whether the worker will refuse a run that is too large for it, in its own words.
func (o *offer) refusesItself(p *pending) bool {
	return len(o.nodes) > 0 && o.runsLeft > 0 && o.lasts(p) && p.resources.Disk <= o.free.Disk
}

// lasts reports whether the worker still runs for as long as a run asks for.
func (o *offer) lasts(p *pending) bool {
	return o.secondsLeft <= 0 || !p.asksTime || p.resources.Time <= o.secondsLeft
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

// offers returns the room of each connected worker, and the runs that all workers have. more is set if
// some worker may have more room than at the last call: then no run may take it before those that have
// waited longer were tried.
func (h *hub) offers(now time.Time) (all []*offer, of held, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	more, h.roomier = h.roomier, false
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
			runsLeft: w.info.ExitAfterNumRuns, secondsLeft: w.info.SecondsLeft, closed: w.info.ExitAfterNumRuns <= 0, whyClosed: w.info.Closed, dependencies: map[[2]string]bool{},
		}
		if o.runsLeft >= codalab.UnlimitedRuns {
			o.runsLeft = math.MaxInt64
		}
		o.runsLeft -= w.unclaimed // the worker itself counts the claimed runs
		o.running = len(w.runs)
		for _, n := range w.info.Nodes {
			o.nodes = append(o.nodes, codalab.Resources{CPUs: n.CPUs, GPUs: n.GPUs, Memory: n.MemoryBytes, Disk: o.total.Disk})
		}
		o.free = o.total
		addResources(&o.free, w.used, -1)
		for _, d := range w.info.Dependencies {
			o.dependencies[d] = true
		}
		offers = append(offers, o)
	}
	return offers, runs, more
}
