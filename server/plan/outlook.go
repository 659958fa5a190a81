package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Outlook is what a new run can expect of the workers that are there now. At most one of its sentences is not empty.
type Outlook struct {
	// Refusal tells why no queue that it names can ever run it.
	Refusal string
	// Warning tells why the run would wait, and for what, or that its requests are beyond the site's limits.
	Warning string
}

// Outlook returns the outlook of a run that is not there yet. It is Match's decision about the run, with all other runs
// left out. Many runs that wait are no reason for a warning.
func (s Site) Outlook(run *Waiting, capacities []Capacity, owner Quota) Outlook {
	if why := s.Refuses(run, owner); why != "" { // as on CodaLab's own server the bundle is made: the quota may change
		return Outlook{Warning: "The run fails unless that changes: " + why + "."}
	}
	v := newPlaces(capacities, nil, map[string]Quota{run.OwnerID: {ParallelRuns: 1}})
	for _, c := range v.all {
		c.Free = Plus(c.Total, codalab.Resources{})
	}
	tag := queueTag(run.Resources.Tag)
	served := v.serving(run, tag)
	worker, why := v.choose(run)
	switch {
	case worker != nil && worker.largeEnough(run):
		return Outlook{}
	case worker != nil && surelyRefused(run, served):
		return Outlook{Refusal: v.whyNever(run, tag, served)}
	case worker != nil:
		return Outlook{Warning: v.whyNever(run, tag, served)}
	case len(served) == 0 && tag == "" && len(v.tags(run, func(*Capacity) bool { return true })) == 0:
		return Outlook{} // there are no workers at all: they may come
	case slices.ContainsFunc(served, func(c *Capacity) bool { return c.largeEnough(run) && c.lasts(run) && !c.Closed }):
		return Outlook{} // they have no room
	}
	return Outlook{Warning: why}
}

// surelyRefused reports whether these workers refuse a run that is too large for them. A queue of an elastic cluster may
// have larger nodes than it tells, and a worker that does not describe itself as a queue may belong to one.
func surelyRefused(run *Waiting, served []*Capacity) bool {
	return !slices.ContainsFunc(served, func(c *Capacity) bool {
		return len(c.Nodes) > 0 && c.allowsTime(run.Resources) && (c.Queue == nil || c.Queue.Elastic)
	})
}

// whyNever tells why queues never run a run, and the nearest request that one of them would take. It tells of no worker
// that the owner may not use.
func (v *places) whyNever(run *Waiting, tag string, served []*Capacity) string {
	queue := "The default queue"
	if tag != "" {
		queue = "Queue " + tag
	}
	asked := run.Resources
	var sizes []codalab.NodeSize
	var longest int64
	fits := false
	for _, c := range served {
		if c.Queue != nil {
			longest = max(longest, c.Queue.MaxSeconds)
		}
		for _, size := range c.Sizes() {
			sizes = append(sizes, codalab.NodeSize{CPUs: size.CPUs, GPUs: size.GPUs, MemoryBytes: size.Memory})
			fits = fits || fitsNode(asked, size)
		}
	}
	why := fmt.Sprintf("%s has no node for %s", queue, formatResources(asked))
	if fits {
		why = fmt.Sprintf("%s runs bundles for at most %s, and this one asks for %s", queue, spellLimit(longest), spellLimit(asked.Time))
	}
	if nearest, ok := codalab.NearestRequest(asked, sizes); ok {
		nearest.Time = 0
		if longest > 0 && asked.Time > longest {
			nearest.Time = longest
		}
		why += ". The nearest request that fits: " + nearest.Options()
	}
	if others := v.queues(run, func(c *Capacity) bool { return c.largeEnough(run) }); others != "" {
		why += ". Queues that can run it: " + others
	}
	return why + "."
}

// spellLimit spells a time limit as it can be requested.
func spellLimit(seconds int64) string {
	return codalab.SpellDuration(time.Duration(seconds) * time.Second)
}

// fitsNode is fits without the disk, which whyNever does not tell about.
func fitsNode(want, node codalab.Resources) bool {
	want.Disk = 0
	return fits(want, node)
}
