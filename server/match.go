package server

import (
	"cmp"
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
	status    string // its staged_status
}

// offer is what a worker can take on now.
type offer struct {
	key          store.Worker
	tag          string
	exclusive    bool
	total        codalab.Resources // of CPUs, GPUs, memory, disk
	free         codalab.Resources
	runsLeft     int64
	running      int
	closed       bool // it takes no run now, whatever that asks for
	dependencies map[[2]string]bool
	sharedDisk   bool
}

// queueTag is the tag of a request_queue: "X" or "tag=X".
func queueTag(queue string) string {
	return strings.TrimPrefix(strings.TrimSpace(queue), "tag=")
}

// inOrder puts runs in the order in which they look for workers: by age, and in the places
// that an owner has by that, the owner's runs of higher priority first; none given is 0. So
// nobody gains on another by a priority (codalab/server/bundle_manager.py:
// _schedule_run_bundles_on_workers).
func inOrder(runs map[string]*pending) []*pending {
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

// choose returns the worker for a run: of the owner's own and root's, one that serves its
// queue and has room, by the order of codalab/server/bundle_manager.py:
// _filter_and_sort_workers. Without one it says why.
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
		return nil, waitingFor(p, tag, queues, served)
	}
	return best, ""
}

func fits(want, have codalab.Resources) bool {
	return want.CPUs <= have.CPUs && want.GPUs <= have.GPUs && want.Memory <= have.Memory && want.Disk <= have.Disk
}

// preferred says whether a is better than b: tag-exclusive, with fewer GPUs, more of the
// dependencies, fewer CPUs, fewer runs.
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
	number := func(yes bool) int {
		if yes {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(number(a.exclusive), number(b.exclusive)), cmp.Compare(a.free.GPUs, b.free.GPUs),
		cmp.Compare(missing(a), missing(b)), cmp.Compare(a.free.CPUs, b.free.CPUs),
		cmp.Compare(a.running, b.running), strings.Compare(a.key.ID, b.key.ID),
	) < 0
}

// waitingFor says why no worker takes a run.
func waitingFor(p *pending, tag string, queues []string, served []*offer) string {
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
	whose := "No worker"
	if tag != "" {
		whose += " of queue " + tag
	}
	for _, o := range served {
		if fits(p.resources, o.total) || o.closed {
			return whose + " has room now; the bundle runs when one has."
		}
	}
	return fmt.Sprintf("%s is large enough for %s; the largest have %s.", whose, inWords(p.resources), inWords(largest(served)))
}

// largest is the most of each that one of the workers has.
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

func inWords(r codalab.Resources) string {
	words := fmt.Sprintf("%d CPUs, %d GPUs, %s memory", r.CPUs, r.GPUs, codalab.FormatSize(r.Memory))
	if r.Disk > 0 {
		words += ", " + codalab.FormatSize(r.Disk) + " disk"
	}
	return words
}

// take notes that a run goes to a worker.
func (o *offer) take(r codalab.Resources) {
	o.free.CPUs -= r.CPUs
	o.free.GPUs -= r.GPUs
	o.free.Memory -= r.Memory
	o.runsLeft--
	o.running++
}

// offers returns what the workers that are there can take on.
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
		o.runsLeft -= w.unclaimed // it counts the others itself
		o.running = len(w.held)
		o.free = o.total
		o.free.CPUs -= w.used.CPUs
		o.free.GPUs -= w.used.GPUs
		o.free.Memory -= w.used.Memory
		for _, d := range w.info.Dependencies {
			o.dependencies[d] = true
		}
		offers = append(offers, o)
	}
	return offers
}
