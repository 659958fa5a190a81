package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// places has the workers to which Match may give runs.
type places struct {
	all   []*Capacity
	byTag map[string][]*Capacity // those that serve this tag only, and by "" all others
	away  []*Capacity            // the queues that are away, which are in none of the others
	// permitted has Clientele.Permitted of each group's workers.
	permitted []map[string]bool
	counts    RunCounts
	quotas    map[string]Quota
	// refused remembers why runs with these requests get no worker: the room of a worker only shrinks
	// while Match runs.
	refused map[request]string
}

// request has all that decides whether a run finds a worker. A run that only some workers may take also
// has its uuid, so that it shares the answer with no other run.
type request struct {
	ownerID string
	codalab.Resources
	uuid    string
	secrets bool
}

// newPlaces copies what Match changes.
func newPlaces(capacities []Capacity, counts RunCounts, quotas map[string]Quota) *places {
	v := &places{byTag: map[string][]*Capacity{}, counts: counts.clone(), quotas: quotas, refused: map[request]string{}}
	groups := map[[2]string]bool{} // by user and group: the workers of one have the same Permitted
	own := slices.Clone(capacities)
	v.all = make([]*Capacity, 0, len(own))
	for i := range own {
		c := &own[i]
		if !c.AwaySince.IsZero() {
			v.away = append(v.away, c)
			continue
		}
		tag := ""
		if c.Exclusive {
			tag = c.Tag
		}
		v.byTag[tag] = append(v.byTag[tag], c)
		v.all = append(v.all, c)
		key := [2]string{c.Worker.User, c.Group}
		if len(c.Serves.Permitted) > 0 && !groups[key] {
			groups[key] = true
			v.permitted = append(v.permitted, c.Serves.Permitted)
		}
	}
	return v
}

// give gives a run to a worker.
func (v *places) give(c *Capacity, run *Waiting) {
	c.deduct(run.Resources)
	v.counts.Add(run.OwnerID, c.Worker)
	v.counts.AddSweep(run.OwnerID, run.Sweep)
}

// sweepFull returns the reason why a run waits for others of its sweep; empty if it does not.
func (v *places) sweepFull(run *Waiting) string {
	if n := v.counts[run.OwnerID].Sweeps[run.Sweep]; run.MaxParallel > 0 && n >= run.MaxParallel {
		return fmt.Sprintf("%d of the sweep's runs are on workers, as many as its limit of parallel runs allows.", n)
	}
	return ""
}

// choose returns the best worker that takes a run, serves its queue and has room, or the reason why there
// is none (codalab/server/bundle_manager.py: _filter_and_sort_workers).
func (v *places) choose(run *Waiting) (*Capacity, string) {
	key := v.request(run)
	if why, ok := v.refused[key]; ok {
		return nil, why
	}
	tag := queueTag(run.Resources.Tag)
	served := v.serving(run, tag)
	others := v.counts[run.OwnerID].Others
	full := int64(others) >= v.quotas[run.OwnerID].ParallelRuns
	mine := func(c *Capacity) bool { return c.Worker.User == run.OwnerID || !full }
	var best *Capacity
	for _, c := range served {
		if c.takesNow(run) && mine(c) && (best == nil || preferred(run, c, best)) {
			best = c
		}
	}
	if best == nil && tooLargeForAll(run, served) {
		// The run would wait without end. It fails at once if a worker takes and refuses it.
		if i := slices.IndexFunc(served, func(c *Capacity) bool { return c.refusesItself(run) && mine(c) }); i >= 0 {
			best = served[i]
		}
	}
	if best != nil {
		return best, ""
	}
	why := v.whyWaiting(run, tag, served)
	if full && slices.ContainsFunc(served, func(c *Capacity) bool {
		return c.Worker.User != run.OwnerID && !c.Closed && c.largeEnough(run) && c.lasts(run)
	}) {
		why = fmt.Sprintf("%d of your runs are on workers, as many as your quota of parallel runs allows.", others)
	}
	v.refused[key] = why
	return nil, why
}

// tooLargeForAll reports whether none of these workers will ever take a run, as far as the server knows.
func tooLargeForAll(run *Waiting, served []*Capacity) bool {
	return !slices.ContainsFunc(served, func(c *Capacity) bool { return c.mayBeLargeEnough(run) || c.largeEnough(run) })
}

// request returns a run's key in refused.
func (v *places) request(run *Waiting) request {
	key := request{ownerID: run.OwnerID, Resources: run.Resources, secrets: run.Secrets}
	key.Resources.ImageReference = ""
	if !run.AsksTime {
		key.Resources.Time = 0
	}
	if slices.ContainsFunc(v.permitted, func(uuids map[string]bool) bool { return uuids[run.UUID] }) {
		key.uuid = run.UUID
	}
	return key
}

// queueTag returns the tag in a request_queue, which is "X" or "tag=X".
func queueTag(queue string) string {
	return strings.TrimPrefix(strings.TrimSpace(queue), "tag=")
}

// serving returns the workers that take a run and serve its queue.
func (v *places) serving(run *Waiting, tag string) []*Capacity {
	var served []*Capacity
	for _, c := range v.byTag[""] {
		if (tag == "" || c.Tag == tag) && c.Takes(run) {
			served = append(served, c)
		}
	}
	if tag == "" {
		return served
	}
	for _, c := range v.byTag[tag] {
		if c.Takes(run) {
			served = append(served, c)
		}
	}
	return served
}
