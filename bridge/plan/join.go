package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Joining is the part of a Submission whose members join a pack that runs. No sbatch makes it: the bridge writes a slot of the pack's
// list of members on the shared disk, and the pack's worker begins the members in their turn (spool.Slot). The slot is written once all
// members are saved, and repeated until its outcome is clear: either the members have joined, or the worker has closed the list before.
// Then they have failed in nothing, and are submitted again.
type Joining struct {
	// Pack is the name of the pack's submission.
	Pack SubmissionName `json:"pack"`
	// Slot is the number of the slot in the list of this name (spool.Members.Name).
	Slot int    `json:"slot"`
	List string `json:"list"`
	// Job is the pack's job, and SubmittedAt the time of its sbatch.
	Job         sbatch.JobID `json:"job"`
	SubmittedAt time.Time    `json:"submitted_at"`
}

// SharedName is the key of the submission that the row shares: the name of its jobs, and the slot if the row joins a pack that runs.
func (r *Row) SharedName() SubmissionName { return slotName(r.SubmissionName, r.Slot) }

// slotName returns the key of the submission of a slot. No name of a job has a slash.
func slotName(pack SubmissionName, slot int) SubmissionName {
	if slot == 0 {
		return pack
	}
	return SubmissionName(fmt.Sprintf("%s/%d", pack, slot))
}

// LastSlot returns the key of the submission of the pack's last slot.
func (s *Submission) LastSlot() SubmissionName { return slotName(s.Name, s.Slots) }

// RunningPack is a pack that rows may join.
type RunningPack struct {
	*Submission

	// Member is a member whose job runs, as Slurm has shown it.
	Member *Row
	// Unfinished counts the members whose end is not known, and added those that Join adds.
	Unfinished int
	added      int
	// Busy is set while the outcome of its last slot is not known.
	Busy bool
}

// ShowsRunningPack reports whether Slurm shows the row's pack running, and since when.
func (r *Row) ShowsRunningPack() bool {
	return r.Pack && r.Phase == Running && r.Job.State == sbatch.StateRunning && !r.Job.Start.IsZero() && r.NoJobSince.IsZero()
}

// end returns the end of the pack's time, as far as the bridge and the worker know it.
func (p *RunningPack) end() time.Time {
	job, limit := p.Member.Job, p.Time
	if job.TimeLimit > 0 { // an administrator may have shortened it
		limit = min(limit, job.TimeLimit)
	}
	return job.Start.Add(limit)
}

// MayBeJoined reports whether rows may join the submission: it is a pack whose worker may still take members. A pack of which there may
// be two jobs has two workers.
func (s *Submission) MayBeJoined() bool {
	return s.Pack && s.Joining == nil && s.State == Made && !s.ListClosed && s.SbatchCount == 1 && s.Width > 0
}

// joinWithin bounds the wait of a member that joins a pack for its turn, if all members before it take all of their time: a job of its
// own may begin sooner than that.
const joinWithin = time.Minute

// joinMargin is the time before a pack's end that a member which joins it leaves. The worker wants half a minute less (worker: endMargin), in which
// the slot is written and seen. PackMargin is longer, for a job whose start is not known yet.
const joinMargin = time.Minute

// mayJoin reports whether a row may join a pack: it asks for the same as the pack's members, on a node that may have it, has its turn
// soon, and its time fits before the pack's end.
func (p Policy) mayJoin(now time.Time, pack *RunningPack, r *Row, nodes Nodes) bool {
	at := pack.Member
	if at.Queue != r.Queue || !p.Packs(r) || !p.MayShare(r) || !p.sharedWith(at, r) || len(pack.Members)+pack.Joined+pack.added >= p.MostTogether(r) {
		return false
	}
	if slices.Contains(strings.Split(nodes.Exclude(now, *r), ","), at.Node()) {
		return false
	}
	q := p.Queues[r.Queue]
	limit := q.commandLimit(r.Resources)
	wait := time.Duration((pack.Unfinished+pack.added)/pack.Width) * limit
	needs := wait + limit + max(q.KillGrace, q.signal(r.Resources)) + joinMargin
	return wait <= joinWithin && !now.Add(needs).After(pack.end())
}

// Join chooses, of rows that wait for their submission, at most so many that join packs that run. waits has the bundles of those, and of rows
// that may join a pack as soon as the outcome of its last slot is known: they wait for that, and need no submission of their own now.
func (p Policy) Join(now time.Time, waiting []*Row, running []RunningPack, nodes Nodes, most int) (joins []Join, waits map[string]bool) {
	waits = map[string]bool{}
	lanes := inLanes(waiting)
	rows := make([]candidate, 0, len(waiting))
	for _, lane := range lanes {
		rows = append(rows, lane...)
	}
	slices.SortFunc(rows, func(a, b candidate) int { return cmp.Or(-cmp.Compare(a.priority, b.priority), a.compareClaims(b)) })
	for i := range running {
		pack := &running[i]
		var chosen []*Row
		for _, c := range rows {
			switch {
			case waits[c.Bundle] || len(waits) >= most || !p.mayJoin(now, pack, c.Row, nodes):
				continue
			case !pack.Busy:
				chosen = append(chosen, c.Row)
			}
			waits[c.Bundle] = true
			pack.added++
		}
		if len(chosen) > 0 {
			joins = append(joins, p.newJoin(now, pack, chosen))
		}
	}
	return joins, waits
}

// Join has the rows that join one pack now, in the order of their turns.
type Join struct {
	// Pack is the pack's submission, with one more slot, and Slot the submission of that.
	Pack, Slot Submission
	// Rows are the rows with their next attempts. The caller passes them to Next.
	Rows []Row
}

// newJoin begins the next attempts of rows that join a pack.
func (p Policy) newJoin(now time.Time, pack *RunningPack, rows []*Row) Join {
	s := *pack.Submission
	s.Slots++
	j := Join{Pack: s, Slot: Submission{
		Name: s.LastSlot(), Generation: s.Generation, Queue: s.Queue, State: Gathering, Since: now, Pack: true,
		Joining: &Joining{Pack: s.Name, Slot: s.Slots, List: p.MembersRecord(&s).Name(), Job: s.Array, SubmittedAt: s.SubmittedAt},
	}}
	for _, r := range rows {
		next := p.NewAttempt(now, *r, s.Generation)
		next.Shared, next.Pack, next.SubmissionName, next.Slot = true, true, s.Name, s.Slots
		next.Reason = fmt.Sprintf("attempt %d joins a pack that runs, job %s", next.Attempt.Number, s.Array)
		j.Rows = append(j.Rows, next)
	}
	return j
}

// FollowSlot notes in a pack's submission what became of its last slot, and reports whether that is new. The worker takes one slot after another, so the slots
// must have no gap: a slot for which no member was ready is given to others, and after one whose outcome nobody awaits any more there is none.
func (s *Submission) FollowSlot(before, after *Submission) (changed bool) {
	switch {
	case after.Joining.Slot != s.Slots:
		return false
	case after.State == Over && before.State == Asked:
		changed, s.ListClosed = !s.ListClosed, true
	case before.State == Gathering && after.State == Asked:
		changed, s.Joined = true, s.Joined+len(after.Members)
	case before.State == Gathering && (after.State == Refused || after.State == Over):
		changed, s.Slots = true, s.Slots-1
	case before.State == Asked && after.State == Refused:
		changed, s.ListClosed = !s.ListClosed, true
	}
	return changed
}

// joining: the slot is wanted until its outcome is clear.
func (d *submissionDecision) joining() {
	s := &d.sub
	if d.news.Array != 0 { // its worker has begun one of the members
		s.Array, s.State = d.news.Array, Made
	}
	if a := d.news.Answer; a != nil && s.State == Asked {
		s.LastFailure = a.Words
		switch {
		case a.Job != 0:
			s.Array, s.State = a.Job, Made
		case a.Refused:
			s.State = Refused
		default:
			d.pause()
		}
	}
	if s.State == Asked && !s.DueAt.After(d.now) {
		d.effects = append(d.effects, JoinPack)
	}
}
