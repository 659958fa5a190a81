package plan

import (
	"cmp"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Submission is one request to Slurm that several rows share: an array, with a task for each of its members (sbatch(1): --array), or a
// pack, one job for all of them (pack.go).
// Attempts to submit, doubt, refusal and absence belong to it; the members' rows follow it (Row.Shared). It is a value that the
// ledger stores. A row with a submission of its own keeps this state itself (Attempt).
type Submission struct {
	// Name is the name of all its jobs in Slurm, and its key.
	Name SubmissionName `json:"name"`
	// Generation is that of its members' attempts.
	Generation int64  `json:"generation"`
	Queue      string `json:"queue"`
	// Members are the attempts that it begins, in the order of their tasks, or of their turns in a pack. There are none while State is Gathering; then the list is
	// closed, and never changes, so that each repeat submits the same list.
	Members []Member `json:"members,omitempty"`

	State SubmissionState `json:"state"`
	// Since is the time at which it was made.
	Since time.Time `json:"since"`
	// DueAt is the time of the next decision without news; zero for never.
	DueAt time.Time `json:"due_at,omitzero"`
	// SubmittedAt is the last start of sbatch; zero before, and after a refusal that is tried again.
	SubmittedAt time.Time `json:"submitted_at,omitzero"`
	Asking
	// FailedTries counts Slurm's temporary refusals in a row. LastFailure has Slurm's last words that were no acceptance.
	FailedTries int    `json:"failed_tries,omitempty"`
	LastFailure string `json:"last_failure,omitempty"`
	// Pack is set if it is a pack. Width is the number of members that run side by side then, and Time the time limit of the job, once the
	// list of members is closed.
	Pack  bool          `json:"pack,omitempty"`
	Width int           `json:"width,omitempty"`
	Time  time.Duration `json:"time,omitempty"`
	// Begun is set once the pack's job is known to have begun a member: its node has launched the job.
	Begun bool `json:"begun,omitempty"`
	// Array is the id of the array, or of the pack's job; 0 before it is known.
	Array sbatch.JobID `json:"array,omitempty"`
	// Accepted is the time at which Slurm accepted the pack's job, if a listing has shown it before the submission was made.
	Accepted time.Time `json:"accepted,omitzero"`
	// Refusal is Slurm's final refusal; nil before.
	Refusal *SbatchAnswer `json:"refusal,omitempty"`
	// Joining is set if the members join a pack that runs. It never changes.
	Joining *Joining `json:"joining,omitempty"`
	// Slots counts the slots of a pack's list that the bridge has given to members that join, Joined those members. ListClosed is set
	// once the bridge knows that none can join any more.
	Slots      int  `json:"slots,omitempty"`
	Joined     int  `json:"joined,omitempty"`
	ListClosed bool `json:"list_closed,omitempty"`
}

// Member is one attempt of a Submission.
type Member struct {
	Bundle   string            `json:"bundle"`
	Name     spool.AttemptName `json:"name"`
	Identity string            `json:"identity,omitempty"`
}

// SubmissionState is the state of a Submission.
type SubmissionState string

// The states of a Submission.
const (
	// Gathering: the specifications of its members are being written.
	Gathering SubmissionState = "gathering"
	// Asked: sbatch will run, runs, or its answer is unknown.
	Asked SubmissionState = "asked"
	// Made: Slurm has the array or the pack.
	Made SubmissionState = "made"
	// Refused: Slurm has made no job of it, or nobody wanted one.
	Refused SubmissionState = "refused"
	// Doubtful: no job is known, and an unclear answer of Slurm may have made one. Its members are fenced.
	Doubtful SubmissionState = "doubtful"
	// Over: no row shares it any more. The ledger removes it.
	Over SubmissionState = "over"
)

// decided reports whether sbatch is not wanted any more.
func (s SubmissionState) decided() bool { return s == Made || s == Refused || s == Doubtful }

// SubmissionNews has the news about a Submission since it was last decided.
type SubmissionNews struct {
	Answer *SbatchAnswer
	// Queue and Accounting have all jobs of its name, or one of them if there are any.
	Queue, Accounting *Observation
	AccountingFailure string
	// Array is that of a job that a row got in this step (ArrayOf), after which the row may have ended; 0 for none. Accepted is the time at
	// which Slurm accepted that job; zero if it is not known.
	Array    sbatch.JobID
	Accepted time.Time
}

// gatherWithin is the longest time for which members wait for the specifications of the others.
const gatherWithin = 10 * time.Second

// Same reports whether the ledger stores the same for both, which are versions of one submission.
func (s *Submission) Same(other Submission) bool {
	return s.State == other.State && len(s.Members) == len(other.Members) && s.DueAt.Equal(other.DueAt) && s.SubmittedAt.Equal(other.SubmittedAt) &&
		s.Since.Equal(other.Since) && s.Asking == other.Asking && s.FailedTries == other.FailedTries && s.LastFailure == other.LastFailure &&
		s.Pack == other.Pack && s.Begun == other.Begun && s.Width == other.Width && s.Time == other.Time && s.Array == other.Array && s.Accepted.Equal(other.Accepted) && s.Refusal == other.Refusal &&
		s.Slots == other.Slots && s.Joined == other.Joined && s.ListClosed == other.ListClosed
}

// Compare orders submissions by their generations. A pack comes before its slots.
func (s Submission) Compare(other Submission) int {
	return cmp.Or(cmp.Compare(s.Generation, other.Generation), cmp.Compare(s.slot(), other.slot()), cmp.Compare(s.Name, other.Name))
}

func (s Submission) slot() int {
	if s.Joining == nil {
		return 0
	}
	return s.Joining.Slot
}

// Waits reports whether nothing but the specification of the last member that is being prepared, or time, is news for a
// submission that was decided before. preparing counts those members (Row.PreparesShared).
func (s *Submission) Waits(now time.Time, preparing int) bool {
	gathered := now.Sub(s.Since)
	return s.State == Gathering && preparing > 0 && !s.DueAt.IsZero() && gathered >= 0 && gathered < gatherWithin
}

// NextSubmission decides one submission. members are the rows of its members, or while it is gathered the rows that shall be its
// members, in their order, without those that have left it for another attempt. The bridge saves the result together with
// the rows that it then decides anew (News.Submission), and starts the effects after that.
func (p Policy) NextSubmission(now time.Time, s Submission, members []*Row, n SubmissionNews) (Submission, []Kind) {
	d := submissionDecision{policy: &p, now: now, sub: s, members: members, news: n}
	for _, t := range []*time.Time{&d.sub.Since, &d.sub.SubmittedAt, &d.sub.AbsentAsOf} {
		if t.After(now) { // somebody has set the clock
			*t = now
		}
	}
	if latest := now.Add(max(p.SubmitGrace, longestBackoff)); d.sub.DueAt.After(latest) {
		d.sub.DueAt = latest
	}
	switch d.sub.State {
	case Gathering:
		d.gathering()
	case Asked:
		d.asked()
	case Made, Refused, Doubtful, Over:
	}
	if !d.sub.DueAt.After(now) || d.sub.State.decided() {
		d.sub.DueAt = time.Time{}
	}
	return d.sub, d.effects
}

// submissionDecision is the state of one call of NextSubmission.
type submissionDecision struct {
	policy  *Policy
	now     time.Time
	sub     Submission
	members []*Row
	news    SubmissionNews
	effects []Kind
}

// gathering: the members' specifications are written to the shared disk. The list of members is closed once all are ready, or
// once those that are ready have waited long enough for the others.
func (d *submissionDecision) gathering() {
	var ready []Member
	waits := false
	for _, r := range d.members {
		switch {
		case !r.WantsShared():
		case r.Prepared:
			ready = append(ready, Member{r.Bundle, r.OnDisk, r.Run.Identity().Digest()})
		default:
			waits = true
		}
	}
	late := d.now.Sub(d.sub.Since) >= gatherWithin
	switch {
	case len(ready) == 0 && !waits:
		d.sub.State = Refused // nobody wants it any more
	case len(ready) == 0 && late && d.sub.Joining != nil: // others wait to join the pack
		d.sub.State = Refused
	case waits && !late:
		d.sub.DueAt = d.sub.Since.Add(gatherWithin)
	case len(ready) > 0:
		d.sub.Members, d.sub.State = ready, Asked
		if d.sub.Joining != nil {
			d.sub.SubmittedAt, d.sub.DueAt = d.now, time.Time{}
			d.joining()
			return
		}
		if d.sub.Pack {
			q, member := d.policy.Queues[d.sub.Queue], d.members[0].Resources
			d.sub.Width = q.packWidth(member, len(ready))
			d.sub.Time = q.packTime(member, len(ready), d.sub.Width)
		}
		d.submit()
	}
}

// asked: sbatch is wanted once. If its answer is lost the bridge searches for the job by its name, and wants sbatch again only
// if there is none.
func (d *submissionDecision) asked() {
	if d.sub.Joining != nil {
		d.joining()
		return
	}
	if array, accepted, ok := d.known(); ok {
		d.sub.Array, d.sub.State = array, Made
		if d.sub.Pack { // the tasks of an array are put back one by one, each with a time of its own then
			d.sub.Accepted = accepted
		}
		return
	}
	if a := d.news.Answer; a != nil {
		d.applyAnswer(*a)
	}
	switch {
	case d.sub.State != Asked:
	case d.sub.SubmittedAt.IsZero() && !d.wanted() && d.sub.SbatchCount == 0:
		d.sub.State = Refused
	case d.sub.SubmittedAt.IsZero() && !d.wanted(): // an unclear answer may have made a job
		d.sub.State = Doubtful
	case d.sub.SubmittedAt.IsZero():
		if !d.sub.DueAt.After(d.now) {
			d.submit()
		}
	default:
		d.search()
	}
}

// search decides a submission without a clear answer.
func (d *submissionDecision) search() {
	switch d.policy.absence(&d.sub.Asking, d.sub.SubmittedAt, d.own(d.news.Queue), d.own(d.news.Accounting)) {
	case notAbsent:
	case absentFromQueue:
		switch {
		case d.news.AccountingFailure != "":
			d.pause()
		case !d.sub.DueAt.After(d.now):
			d.effects = append(d.effects, QueryAccounting)
		}
	case absent:
		switch {
		case !d.wanted():
			d.sub.State = Refused
		case d.sub.UnclearCount >= unclearAnswers:
			d.sub.State = Doubtful
		default:
			d.submit()
		}
	case unprovable:
		d.sub.State = Doubtful
	}
}

// known returns the id of the array, or of the pack's job, if a job of it is known, and the time at which Slurm accepted that job, if that is known.
func (d *submissionDecision) known() (array sbatch.JobID, accepted time.Time, ok bool) {
	if d.news.Array != 0 {
		return d.news.Array, d.news.Accepted, true
	}
	for _, r := range d.members {
		if array, ok := d.policy.ArrayOf(r); ok {
			return array, r.Job.Submitted, true
		}
	}
	for _, o := range []*Observation{d.own(d.news.Queue), d.own(d.news.Accounting)} {
		if job, ok := adoptable(o); ok {
			array, _, isTask := job.ID.ArrayTask()
			if !isTask { // a pack, or a large array that waits, which Slurm shows as one job
				array = job.ID
			}
			return array, job.Submitted, true
		}
	}
	return 0, time.Time{}, false
}

// ArrayOf returns the array of a member's task, or the job of its pack, once that is known. An attempt that a task of another submission began, which an
// older copy of the ledger does not know, shows nothing of this one.
func (p Policy) ArrayOf(r *Row) (array sbatch.JobID, ok bool) {
	if r.Begun != nil && r.Begun.Submission != p.Submission(*r) {
		return 0, false
	}
	array, _, isTask := r.Job.ID.ArrayTask()
	if r.Pack {
		return r.Job.ID, !isTask && r.Job.ID != 0
	}
	return array, isTask
}

// ArrayBegunBy returns the same for a member whose news brings the record of its start. The decision on that news may send the row back,
// which then has no job any more: its worker has begun nothing.
func (p Policy) ArrayBegunBy(r *Row, n *News) (array sbatch.JobID, ok bool) {
	if n.Records == nil || n.Records.Attempt != r.Attempt.Number || n.Records.Started == nil {
		return 0, false
	}
	id, err := sbatch.ParseJobID(n.Records.Started.Job)
	if err != nil { // it was fenced
		return 0, false
	}
	begun := *r
	begun.Begun, begun.Job.ID = n.Records.Started, id
	return p.ArrayOf(&begun)
}

// own returns an observation without the jobs that are not the submission's: a user may have copied its name.
func (d *submissionDecision) own(o *Observation) *Observation {
	if o == nil || o.SubmissionName != d.sub.Name {
		return nil
	}
	own := Observation{Asked: o.Asked}
	for _, j := range o.Jobs {
		stamp, stamped := SharedStampOf(j)
		if stamped && stamp.Bridge == d.policy.Bridge && stamp.Generation == d.sub.Generation || !stamped && j.Name == string(d.sub.Name) {
			own.Jobs = append(own.Jobs, j)
		}
	}
	return &own
}

// wanted reports whether a row still waits for the submission.
func (d *submissionDecision) wanted() bool {
	for _, r := range d.members {
		if r.WantsShared() {
			return true
		}
	}
	return false
}

// submit wants sbatch.
func (d *submissionDecision) submit() {
	d.sub.SubmittedAt, d.sub.DueAt = d.now, time.Time{}
	d.sub.Asking.begin()
	d.effects = append(d.effects, Submit)
}

// pause sets the time of the next decision after a failure.
func (d *submissionDecision) pause() {
	d.sub.FailedTries++
	d.sub.DueAt = d.now.Add(pauseAfter(d.sub.FailedTries))
}

func (d *submissionDecision) applyAnswer(a SbatchAnswer) {
	s := &d.sub
	switch {
	case a.Job != 0:
		s.Array, s.State = a.Job, Made
		return
	case a.Refused && a.Retry && s.SbatchCount > 1: // an earlier sbatch may have made a job
		s.SubmittedAt, s.SbatchCount = time.Time{}, s.SbatchCount-1
		d.pause()
	case a.Refused && s.SbatchCount > 1:
		s.RepeatRefusal, s.State = a.Words, Doubtful
	case a.Refused:
		s.State, s.Refusal = Refused, &a
	default:
		s.UnclearCount++
		s.DueAt = s.SubmittedAt.Add(d.policy.SubmitGrace)
	}
	s.LastFailure = a.Words
}

// MayShare reports whether the row's next attempt may share a submission with other rows: one in a pack, or the first of a bundle
// in an array, where the queue has them.
func (p Policy) MayShare(r *Row) bool {
	return p.MostTogether(r) > 1 && (r.Attempt.Number == 0 || p.Packs(r)) && !r.Standalone && r.Resumption.From == ""
}

// sharedWith reports whether two rows ask Slurm for the same.
func (p Policy) sharedWith(a, b *Row) bool {
	x, y := a.Resources, b.Resources
	return p.Packs(a) == p.Packs(b) && x.CPUs == y.CPUs && x.GPUs == y.GPUs && x.Memory == y.Memory && x.Time == y.Time && p.niceOf(a) == p.niceOf(b) && a.SickNodes == b.SickNodes && a.AnyNode == b.AnyNode &&
		a.Run.OwnerID == b.Run.OwnerID && p.Queues[a.Queue].Billed(p.billing(*a)).kind() == p.Queues[b.Queue].Billed(p.billing(*b)).kind() &&
		p.billing(*a).WCKey == p.billing(*b).WCKey && p.billing(*a).Reservation == p.billing(*b).Reservation
}

// SharedRequest returns the request for the array or the pack of a submission. leader is the row of one of its members.
func (p Policy) SharedRequest(s *Submission, leader Row) sbatch.Request {
	req, sideBySide := p.Request(leader), ""
	req.Name, req.Comment = string(s.Name), p.sharedComment(s, leader)
	if s.Pack {
		req = p.packRequest(req, &leader, s)
		sideBySide = fmt.Sprintf(" --side-by-side=%d --time=%s", s.Width, req.Time)
	} else {
		req.Tasks = len(s.Members)
	}
	id := p.Submission(leader)
	members := p.MembersRecord(s).Name()
	req.Dir, req.Output = p.Layout.Arrays(), p.Layout.ArrayOutputPath(members)
	req.Script = "#!/bin/sh\n" + cmp.Or(p.Queues[leader.Queue].Worker, p.Worker).Exec("exec", "--submission="+id, "--members="+sbatch.Quote(p.Layout.MembersPath(members))+sideBySide)
	return req
}

// MembersRecord returns the record of the members for the submission's workers.
func (p Policy) MembersRecord(s *Submission) spool.Members {
	m := spool.Members{Submission: submissionID(p.Bridge, s.Generation), Attempts: make([]spool.Member, len(s.Members))}
	for i, member := range s.Members {
		m.Attempts[i] = spool.Member(member)
	}
	return m
}
