package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// JobKind has the properties of a job that decide which limits of Slurm's QOS and associations apply to a job of the bridge.
type JobKind struct{ Partition, Account, QOS string }

// kind returns the kind of the queue's jobs.
func (q Queue) kind() JobKind { return JobKind{q.Partition, q.Account, q.QOS} }

// JobKind returns the kind of a row's job.
func (p Policy) JobKind(r *Row) JobKind {
	if len(p.Map) == 0 {
		return p.Queues[r.Queue].kind()
	}
	return p.Queues[r.Queue].Billed(p.billing(*r)).kind()
}

// JobKinds returns the kinds of the jobs of a queue: the queue's own, and those that the site's table gives owners.
func (p Policy) JobKinds(queue string) []JobKind {
	q, ok := p.Queues[queue]
	if !ok {
		return nil
	}
	kinds := []JobKind{q.kind()}
	for _, m := range p.Map {
		if m.Refuse != "" || len(m.Queues) > 0 && !slices.Contains(m.Queues, queue) {
			continue
		}
		if k := q.Billed(m.Billing).kind(); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
		if slices.Contains(m.Users, "*") {
			break // no later entry counts
		}
	}
	return kinds
}

// Limits are the limits of Slurm's QOS and associations on each kind of the bridge's jobs, as Slurm last told them. A nil
// map knows none.
type Limits map[JobKind][]sbatch.Limit

// LimitsOf returns the limits on all kinds of jobs of a policy, with their use.
func LimitsOf(p *Policy, t sbatch.LimitTable, use sbatch.LimitUse) Limits {
	limits := Limits{}
	for name := range p.Queues {
		for _, kind := range p.JobKinds(name) {
			if _, ok := limits[kind]; !ok {
				limits[kind] = use.Fill(t.Of(kind.Account, kind.QOS, kind.Partition))
			}
		}
	}
	return limits
}

// Any reports whether there is any limit.
func (l Limits) Any() bool {
	for _, limits := range l {
		if len(limits) > 0 {
			return true
		}
	}
	return false
}

// QOS returns the names of the QOS that have limits on the jobs.
func (l Limits) QOS() []string {
	names := map[string]bool{}
	for _, limits := range l {
		for _, limit := range limits {
			if limit.Holder.QOS != "" {
				names[limit.Holder.QOS] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Words describes the limits on jobs of these kinds.
func (l Limits) Words(kinds []JobKind) []string {
	var words []string
	for _, kind := range kinds {
		for _, limit := range l[kind] {
			if said := LimitWords(limit); !slices.Contains(words, said) {
				words = append(words, said)
			}
		}
	}
	return words
}

// Reached returns a sentence about the limit for which a job of a kind waits, with its present use; empty if the limit is
// not known. Of several limits that the reason may mean, it is the one with the largest part in use.
func (l Limits) Reached(kind JobKind, reason string) string {
	if sbatch.Explain(reason).Category != sbatch.WaitsForLimit {
		return ""
	}
	var found []sbatch.Limit
	for _, limit := range l[kind] {
		if limit.Explains(reason) {
			found = append(found, limit)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return LimitSentence(slices.MaxFunc(found, func(a, b sbatch.Limit) int { return cmp.Compare(used(a), used(b)) }))
}

// ReachedLimit is a sentence about the limit for which a pending job waits for this reason of Slurm's.
type ReachedLimit struct{ Reason, Sentence string }

// WaitsForLimit reports whether the row's job is pending because a limit is reached.
func (r Row) WaitsForLimit() bool {
	return r.Phase == Queued && !r.Standalone && r.Job.State == sbatch.StatePending &&
		sbatch.Explain(r.Job.Reason).Category == sbatch.WaitsForLimit
}

// used returns the part of a limit that is in use; 0 if that is not known.
func used(l sbatch.Limit) float64 {
	if !l.Known || l.Most == 0 {
		return 0
	}
	return float64(l.Used) / float64(l.Most)
}

// JobCounts counts the bridge's own jobs in Slurm.
type JobCounts map[JobKind]int

// Rooms counts how many more jobs Slurm takes of each kind, by the limits on the number of jobs that wait or run. A nil
// *Rooms has no bound.
type Rooms struct {
	kindOf func(*Row) JobKind
	of     map[JobKind][]*room
}

// room is the room below one limit.
type room struct {
	limit sbatch.Limit
	left  int64
}

// Rooms returns the rooms of a moment. own counts the bridge's jobs now, and before counted them when Slurm told the use of
// the limits. Where Slurm hides the use, own is all that is known of it.
func (l Limits) Rooms(p Policy, own, before JobCounts) *Rooms {
	rooms, byLimit := &Rooms{kindOf: p.JobKind, of: map[JobKind][]*room{}}, map[sbatch.Limit]*room{}
	for kind, limits := range l {
		for _, limit := range limits {
			if !limit.Kind.OnSubmissions() {
				continue
			}
			at := byLimit[limit.Bare()]
			if at == nil {
				at = &room{limit: limit, left: limit.Most}
				byLimit[limit.Bare()] = at
				if limit.Known {
					at.left -= limit.Used
				}
			}
			at.left -= int64(own[kind])
			if limit.Known {
				at.left += int64(before[kind])
			}
			rooms.of[kind] = append(rooms.of[kind], at)
		}
	}
	if len(byLimit) == 0 {
		return nil
	}
	return rooms
}

// Has reports whether Slurm takes another job like the row's.
func (r *Rooms) Has(row *Row) bool {
	return !slices.ContainsFunc(r.below(row), func(at *room) bool { return at.left <= 0 })
}

// below returns the rooms below the limits on jobs like the row's.
func (r *Rooms) below(row *Row) []*room {
	if r == nil {
		return nil
	}
	return r.of[r.kindOf(row)]
}

// take counts the submission of a row.
func (r *Rooms) take(row *Row) {
	for _, at := range r.below(row) {
		at.left--
	}
}

// Full returns a sentence for each kind of which Slurm takes no more jobs, as it may follow "Waiting: ". before has the
// earlier sentences: one stays until a tenth of its limit is free again, so that rows that wait are not told in turn that
// there is one place, and that there is none.
func (r *Rooms) Full(before map[JobKind]string) map[JobKind]string {
	full := map[JobKind]string{}
	if r == nil {
		return full
	}
	for kind, rooms := range r.of {
		for _, at := range rooms {
			if at.left <= 0 || before[kind] != "" && at.left <= at.limit.Most/10 {
				l := at.limit
				l.Used, l.Known = l.Most, true
				full[kind] = lowerFirst(trimDot(LimitSentence(l)))
				break
			}
		}
	}
	return full
}

// Ceiling is the most that one job can ever have by Slurm's limits. A field without a bound is [NoCeiling].
type Ceiling struct {
	sbatch.NodeResources

	// Time is the longest time limit; 0 for no bound.
	Time time.Duration
	// By has the limits that bound it.
	By []sbatch.Limit
}

// NoCeiling means that there is no bound.
const NoCeiling = 1<<63 - 1

// Ceiling returns the ceiling of the jobs of a queue: of its kinds of jobs, the largest amount of each resource. It is
// false if nothing bounds them.
func (l Limits) Ceiling(kinds []JobKind) (Ceiling, bool) {
	var all Ceiling
	for i, kind := range kinds {
		one := ceilingOf(l[kind])
		if i == 0 {
			all = one
			continue
		}
		all.NodeResources = largerOf(all.NodeResources, one.NodeResources)
		if all.Time = max(all.Time, one.Time); one.Time == 0 || all.Time == 0 {
			all.Time = 0
		}
		all.By = append(all.By, one.By...)
	}
	unbounded := len(kinds) == 0 || all.CPUs == NoCeiling && all.Memory == NoCeiling && all.GPUs == NoCeiling && len(all.GPUTypes) == 0 && all.Time == 0
	return all, !unbounded
}

// largerOf returns the larger of two ceilings. A type of GPUs that one of them does not bound has no bound.
func largerOf(a, b sbatch.NodeResources) sbatch.NodeResources {
	both := a.Max(b)
	for kind := range both.GPUTypes {
		_, first := a.GPUTypes[kind]
		_, second := b.GPUTypes[kind]
		if !first || !second {
			delete(both.GPUTypes, kind)
		}
	}
	return both
}

// ceilingOf returns the ceiling by limits that all apply. A limit on what several jobs have together bounds each of them,
// too.
func ceilingOf(limits []sbatch.Limit) Ceiling {
	c := Ceiling{NodeResources: sbatch.NodeResources{CPUs: NoCeiling, Memory: NoCeiling, GPUs: NoCeiling, GPUTypes: map[string]int64{}}}
	for _, l := range limits {
		switch {
		case l.Kind == sbatch.MaxWallPJ:
			if at := time.Duration(l.Most) * time.Minute; c.Time == 0 || at < c.Time {
				c.Time = at
			}
		case l.Kind != sbatch.MaxTRESPJ && l.Kind != sbatch.MaxTRESPN && !l.Kind.OnShared():
			continue
		case l.TRES == "cpu":
			c.CPUs = min(c.CPUs, l.Most)
		case l.TRES == "mem":
			c.Memory = min(c.Memory, mebibytes(l.Most))
		case l.TRES == gpuTRES:
			c.GPUs = min(c.GPUs, l.Most)
		case strings.HasPrefix(l.TRES, gpuTRES+":"):
			name := strings.TrimPrefix(l.TRES, gpuTRES+":")
			if at, ok := c.GPUTypes[name]; !ok || l.Most < at {
				c.GPUTypes[name] = l.Most
			}
		default:
			continue
		}
		c.By = append(c.By, l)
	}
	return c
}

const gpuTRES = "gres/gpu"

func mebibytes(n int64) int64 {
	const mib = 1 << 20
	if n > NoCeiling/mib {
		return NoCeiling
	}
	return n * mib
}

// Words names the limits that bound the ceiling.
func (c Ceiling) Words() string {
	var words []string
	for _, l := range c.By {
		l.Known = false
		if w := LimitWords(l); l.Kind != sbatch.MaxWallPJ && !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	return strings.Join(words, "; ")
}

// Bound returns the sizes of nodes, none of them above the ceiling. It changes none of them.
func (c Ceiling) Bound(sizes sbatch.NodeSizes) sbatch.NodeSizes {
	var bounded sbatch.NodeSizes
	for _, s := range sizes {
		s.CPUs, s.Memory, s.GPUs = min(s.CPUs, c.CPUs), min(s.Memory, c.Memory), min(s.GPUs, c.GPUs)
		s.GPUTypes = c.BoundTypes(s.GPUTypes)
		bounded = bounded.With(s)
	}
	return bounded
}

// BoundTypes returns the numbers of GPUs of each type, none of them above the ceiling.
func (c Ceiling) BoundTypes(types map[string]int64) map[string]int64 {
	types = maps.Clone(types)
	for name, n := range types {
		if at, ok := c.GPUTypes[name]; ok {
			n = min(n, at)
		}
		types[name] = min(n, c.GPUs)
	}
	return types
}

// BoundTime returns the longer time limit that the ceiling allows, of which 0 is no bound.
func (c Ceiling) BoundTime(most time.Duration) time.Duration {
	if c.Time == 0 || most == 0 {
		return max(c.Time, most)
	}
	return min(c.Time, most)
}

// Exceeds returns the limits that bound the ceiling and that a request is above, as sentences.
func (c Ceiling) Exceeds(asked sbatch.NodeResources, limit time.Duration) []string {
	var above []string
	for _, l := range c.By {
		var n int64
		switch {
		case l.Kind == sbatch.MaxWallPJ:
			n = int64(limit / time.Minute)
		case l.TRES == "cpu":
			n = asked.CPUs
		case l.TRES == "mem":
			n = asked.Memory >> 20
		case l.TRES == gpuTRES:
			n = asked.GPUs
		default:
			n = asked.GPUTypes[strings.TrimPrefix(l.TRES, gpuTRES+":")]
		}
		if n > l.Most {
			l.Known = false
			above = append(above, LimitSentence(l))
		}
	}
	return above
}
