package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Capacity has the resources of a worker, as its check-ins tell them, and its room for further runs.
type Capacity struct {
	Worker Worker
	// Group is the uuid of the group that the worker serves; empty for none.
	Group string
	// Serves has the users other than Worker.User whose runs the worker takes.
	Serves Clientele
	Tag    string
	// Exclusive workers take only runs that name their tag.
	Exclusive bool
	// Total has the CPUs, GPUs, memory and disk of the worker, and Free what of them no run has.
	Total, Free codalab.Resources
	// Nodes has the sizes of the worker's machines if they are several. A run needs one of them.
	Nodes []codalab.Resources
	// RunsLeft is the number of runs that the worker takes before it ends.
	RunsLeft int64
	// Ahead is the number of further runs that the worker takes at once although it has no room for them.
	Ahead int64
	// SecondsLeft is the time until the worker ends; 0 if it does not say.
	SecondsLeft int64
	// Running counts the runs that the worker has.
	Running int
	// Closed means that the worker takes no runs at all now. WhyClosed is its reason; empty if it gives none.
	Closed    bool
	WhyClosed string
	// Dependencies has the uuid and the path of each dependency on the worker's disk; nil for none.
	Dependencies map[[2]string]bool
	SharedDisk   bool
	// Secrets is set for a worker that gives a run its secrets.
	Secrets bool
	// Queue describes a worker that is a queue of a batch system; nil for others.
	Queue *codalab.QueueInfo
	// AwaySince is the last check-in of a queue that has gone; zero for a worker that is there. A queue that is away
	// takes no runs.
	AwaySince time.Time
}

// Clientele decides whose runs a worker takes. Every worker takes the runs of its user. Also
//
//   - a worker of root takes everybody's runs, as on CodaLab's own server;
//   - a worker of a worker account takes those of the owners and groups in its scopes;
//   - a worker for a group takes those of the group's members on which the worker's user has all
//     permissions, because the worker's user sees the files that a run reads and writes.
type Clientele struct {
	Everybody bool
	Owners    map[string]bool // by id
	// Permitted has those runs of a group's members, by uuid, with which the worker's user may do
	// anything.
	Permitted map[string]bool
	// Members has the members of the group, by id; nil if the worker serves none, or everybody is a member.
	Members map[string]bool
}

// Takes reports whether the worker takes the run, apart from its size and its tag.
func (c *Capacity) Takes(run *Waiting) bool {
	switch {
	case run.Secrets && !c.Secrets:
		return false
	case c.Worker.User == run.OwnerID || c.Serves.Everybody || c.Serves.Owners[run.OwnerID]:
		return true
	}
	// Another user's worker never gets secrets (package secrets).
	return c.Serves.Permitted[run.UUID] && !run.Secrets
}

// Sizes returns the most that one run can get of the worker.
func (c *Capacity) Sizes() []codalab.Resources {
	if len(c.Nodes) > 0 {
		return c.Nodes
	}
	return []codalab.Resources{c.Total}
}

// largeEnough reports whether the worker, when it is idle, can take a run.
func (c *Capacity) largeEnough(run *Waiting) bool {
	return c.allowsTime(run.Resources) && slices.ContainsFunc(c.Sizes(), func(size codalab.Resources) bool { return fits(run.Resources, size) })
}

// allowsTime reports whether a run's time limit is within that of the queue. Like a bridge, it also counts the limit that
// the site gives to a run that requests none.
func (c *Capacity) allowsTime(r codalab.Resources) bool {
	return c.Queue == nil || c.Queue.MaxSeconds <= 0 || r.Time <= c.Queue.MaxSeconds
}

// mayBeLargeEnough reports whether a closed worker is large enough for a run, or does not tell its size: a closed queue
// of a bridge tells none, and a worker manager that of its workers.
func (c *Capacity) mayBeLargeEnough(run *Waiting) bool {
	return c.Closed && (c.Total.CPUs == 0 || c.largeEnough(run))
}

// takesNow reports whether the worker takes a run now.
func (c *Capacity) takesNow(run *Waiting) bool {
	return c.RunsLeft > 0 && c.largeEnough(run) && (c.hasRoom(run) || c.Ahead > 0 && run.Resources.Disk <= c.Free.Disk) && c.lasts(run)
}

// hasRoom reports whether what no run has of the worker is enough for a run.
func (c *Capacity) hasRoom(run *Waiting) bool { return fits(run.Resources, c.Free) }

// refusesItself reports whether the worker will refuse a run that is too large for it, in its own words.
func (c *Capacity) refusesItself(run *Waiting) bool {
	return len(c.Nodes) > 0 && c.RunsLeft > 0 && c.lasts(run) && run.Resources.Disk <= c.Free.Disk
}

// lasts reports whether the worker still runs for as long as a run asks for.
func (c *Capacity) lasts(run *Waiting) bool {
	return c.SecondsLeft <= 0 || !run.AsksTime || run.Resources.Time <= c.SecondsLeft
}

// deduct reduces a capacity by a run that goes to the worker.
func (c *Capacity) deduct(r codalab.Resources) {
	c.Free = Minus(c.Free, r)
	c.RunsLeft--
	c.Running++
	c.Ahead--
}

// preferred reports whether a run goes to a rather than b. Workers with room come first, and of the others those that have taken the least
// ahead. Otherwise it compares, in this order: tag-exclusive first, fewer free GPUs, more of the run's dependencies, fewer free CPUs, fewer
// runs (codalab/server/bundle_manager.py: _filter_and_sort_workers).
func preferred(run *Waiting, a, b *Capacity) bool {
	missing := func(c *Capacity) int {
		n := 0
		for d := range run.Parents {
			if !c.SharedDisk && !c.Dependencies[d] {
				n++
			}
		}
		return n
	}
	room := a.hasRoom(run)
	if room != b.hasRoom(run) {
		return room
	}
	if !room && a.Free.CPUs != b.Free.CPUs { // else one that is full would take all that others take ahead, too
		return a.Free.CPUs > b.Free.CPUs
	}
	if a.Exclusive != b.Exclusive {
		return a.Exclusive
	}
	return cmp.Or(
		cmp.Compare(a.Free.GPUs, b.Free.GPUs),
		cmp.Compare(missing(a), missing(b)), cmp.Compare(a.Free.CPUs, b.Free.CPUs),
		cmp.Compare(a.Running, b.Running), strings.Compare(a.Worker.ID, b.Worker.ID),
	) < 0
}

func fits(want, have codalab.Resources) bool {
	return want.CPUs <= have.CPUs && want.GPUs <= have.GPUs && want.Memory <= have.Memory && want.Disk <= have.Disk
}

// Plus returns sum with the CPUs, GPUs and memory of r added.
func Plus(sum, r codalab.Resources) codalab.Resources {
	sum.CPUs += r.CPUs
	sum.GPUs += r.GPUs
	sum.Memory += r.Memory
	return sum
}

// Minus returns sum without the CPUs, GPUs and memory of r.
func Minus(sum, r codalab.Resources) codalab.Resources {
	sum.CPUs -= r.CPUs
	sum.GPUs -= r.GPUs
	sum.Memory -= r.Memory
	return sum
}
