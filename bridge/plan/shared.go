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
	// Members are the attempts that it begins, in the order of their tasks. There are none while State is Gathering; then the list is
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
	// Array is the id of the array, or of the pack's job; 0 before it is known.
	Array sbatch.JobID `json:"array,omitempty"`
	// Refusal is Slurm's refusal of the array; nil before.
	Refusal *SbatchAnswer `json:"refusal,omitempty"`
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
	// Made: Slurm has the array.
	Made SubmissionState = "made"
	// Refused: Slurm has made no array of it, or nobody wanted one.
	Refused SubmissionState = "refused"
	// Doubtful: no array is known, and an unclear answer of Slurm may have made one. Its members are fenced.
	Doubtful SubmissionState = "doubtful"
	// Over: no row shares it any more. The ledger removes it.
	Over SubmissionState = "over"
)

// decided reports whether sbatch is not wanted any more.
func (s SubmissionState) decided() bool { return s == Made || s == Refused || s == Doubtful }

// SubmissionNews is what arrived about a Submission since it was last decided.
type SubmissionNews struct {
	Answer *SbatchAnswer
	// Queue and Accounting have all jobs of its name, or one of them if there are any.
	Queue, Accounting *Observation
	AccountingFailure string
	// Array is the array of a task that a row got in this step, after which the row may have ended; 0 for none.
	Array sbatch.JobID
}

// gatherWithin is the longest time for which members wait for the specifications of the others.
const gatherWithin = 10 * time.Second

// Same reports whether the ledger stores the same for both, which are versions of one submission.
func (s *Submission) Same(other Submission) bool {
	return s.State == other.State && len(s.Members) == len(other.Members) && s.DueAt.Equal(other.DueAt) && s.SubmittedAt.Equal(other.SubmittedAt) &&
		s.Since.Equal(other.Since) && s.Asking == other.Asking && s.FailedTries == other.FailedTries && s.LastFailure == other.LastFailure &&
		s.Pack == other.Pack && s.Width == other.Width && s.Time == other.Time && s.Array == other.Array && s.Refusal == other.Refusal
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
		case !r.wantsShared():
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
	case waits && !late:
		d.sub.DueAt = d.sub.Since.Add(gatherWithin)
	case len(ready) > 0:
		d.sub.Members, d.sub.State = ready, Asked
		if d.sub.Pack {
			q := d.policy.Queues[d.sub.Queue]
			d.sub.Width, d.sub.Time = q.packWidth(d.members[0].Resources, len(ready)), q.PackTime.Truncate(time.Minute)
		}
		d.submit()
	}
}

// asked: sbatch is wanted once. If its answer is lost the bridge searches for the array by its name, and wants sbatch again only
// if there is none.
func (d *submissionDecision) asked() {
	if array, ok := d.known(); ok {
		d.sub.Array, d.sub.State = array, Made
		return
	}
	if a := d.news.Answer; a != nil {
		d.applyAnswer(*a)
	}
	switch {
	case d.sub.State != Asked:
	case d.sub.SubmittedAt.IsZero() && !d.wanted() && d.sub.SbatchCount == 0:
		d.sub.State = Refused
	case d.sub.SubmittedAt.IsZero() && !d.wanted(): // an unclear answer may have made an array
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

// known returns the array's id if a job of it is known.
func (d *submissionDecision) known() (array sbatch.JobID, ok bool) {
	if d.news.Array != 0 {
		return d.news.Array, true
	}
	for _, r := range d.members {
		if array, ok := d.policy.ArrayOf(r); ok {
			return array, true
		}
	}
	for _, o := range []*Observation{d.own(d.news.Queue), d.own(d.news.Accounting)} {
		if job, ok := adoptable(o); ok {
			array, _, isTask := job.ID.ArrayTask()
			if !isTask { // a pack, or a large array that waits, which Slurm shows as one job
				array = job.ID
			}
			return array, true
		}
	}
	return 0, false
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
		if r.wantsShared() {
			return true
		}
	}
	return false
}

// mayBeMade reports whether the row shares a submission of which it is not known yet whether it has made a job for the row.
func (d *decision) mayBeMade() bool {
	p := d.news.Submission
	return d.row.Shared && d.row.Job.ID == 0 && p != nil && (p.State == Gathering || p.State == Asked)
}

// wantsShared reports whether a row waits for its shared submission.
func (r *Row) wantsShared() bool { return r.Phase == Submitting && r.StopVerdict == nil }

// PreparesShared reports whether a row's specification for its shared submission is still to be written.
func (r *Row) PreparesShared() bool { return r.Shared && r.wantsShared() && !r.Prepared }

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
	case a.Refused && a.Retry && s.SbatchCount > 1: // an earlier sbatch may have made an array
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

// Place is what a row needs to know of the submission that it shares.
type Place struct {
	State SubmissionState
	// Left is set if the list of members was closed without the row.
	Left bool `json:",omitempty"`
	// Closed is set if the list of members is closed and has the row, at Index.
	Closed bool `json:",omitempty"`
	Index  int  `json:",omitempty"`
	// Members is the number of members.
	Members     int       `json:",omitempty"`
	SubmittedAt time.Time `json:",omitzero"`
	// SbatchCount counts the decisions to run sbatch: more than one may have made more than one array.
	SbatchCount int `json:",omitempty"`
	// Job is the row's job once the submission is made.
	Job     sbatch.JobID  `json:",omitempty"`
	Refusal *SbatchAnswer `json:",omitempty"`
	// Words are Slurm's last words that were no acceptance.
	Words string `json:",omitempty"`
	// DueAt and FailedTries are those of the submission.
	DueAt       time.Time `json:",omitzero"`
	FailedTries int       `json:",omitempty"`
}

// PlaceOf returns the place of an attempt in the submission. index has the places of all members, by their bundles.
func (s *Submission) PlaceOf(r *Row, index map[string]int) Place {
	i, ok := index[r.Bundle]
	ok = ok && s.Members[i].Name == r.OnDisk
	job := s.Array
	if s.Array != 0 && !s.Pack {
		job = s.Array.Task(i)
	}
	return Place{
		State: s.State, Left: !ok && s.State != Gathering && s.State != Doubtful, Closed: ok, Index: i, Members: len(s.Members), SubmittedAt: s.SubmittedAt,
		SbatchCount: s.SbatchCount, Job: job, Refusal: s.Refusal, Words: cmp.Or(s.RepeatRefusal, s.LastFailure),
		DueAt: s.DueAt, FailedTries: s.FailedTries,
	}
}

// submittingShared is submitting for a row that shares its submission: the row writes its specification, and follows the
// submission then.
func (d *decision) submittingShared() {
	place := d.news.Submission
	if place != nil {
		d.applyPlace(*place)
	}
	switch {
	case d.row.Phase != Submitting:
	case d.row.StopVerdict != nil && d.row.SubmittedAt.IsZero():
		d.endUnsubmitted()
	case d.row.StopVerdict != nil: // there may be a job
		d.enterStopping()
	case place != nil && place.State == Doubtful && !d.row.Fenced:
		d.fence()
	case place != nil && place.State == Doubtful:
		d.boundTogether(1)
		d.nextAttempt("Slurm gave no clear answer to the submission of the array, and has no such job: " + place.Words)
	case !d.row.Prepared && d.row.SubmittedAt.IsZero():
		d.prepare()
	}
}

// applyPlace applies the state of the shared submission.
func (d *decision) applyPlace(p Place) {
	r := &d.row
	if p.Closed {
		r.follow(p)
		if r.TimeLimits == (TimeLimits{}) && !r.Pack {
			r.TimeLimits = newTimeLimits(d.queue.jobLimit(r.Resources))
		}
	}
	if p.Closed && p.State == Asked && r.StopVerdict == nil { // it pauses with its submission
		r.DueAt, r.FailedTries = p.DueAt, max(r.FailedTries, p.FailedTries)
	}
	switch {
	case r.StopVerdict != nil && p.State != Made:
	case p.Left:
		d.sendBack("it was not ready with the others, and is submitted with the next ones")
	case p.State == Made:
		d.adopt(sbatch.Job{ID: p.Job, Name: string(r.SubmissionName), State: sbatch.StatePending, Reason: "None"}, "sbatch accepted it together with others")
	case p.State == Refused && p.Refusal != nil:
		d.applyRefusal(*p.Refusal, p.Members)
	case p.State == Asked && p.Words != "" && p.SubmittedAt.IsZero():
		r.Reason = temporaryRefusal(p.Words)
	case p.State == Asked && p.Words != "":
		r.Reason = "sbatch gave no clear answer (" + p.Words + "): looking for the array by its name"
	}
}

// follow notes in a member's row what its later phases need of the submission.
func (r *Row) follow(p Place) {
	r.Index, r.SbatchCount = p.Index, p.SbatchCount
	r.SubmittedAt = cmp.Or(p.SubmittedAt, r.SubmittedAt)
}

// applyRefusal applies Slurm's refusal of an array of so many members. None of them is at fault: they are submitted again, in smaller
// arrays, down to one by one.
func (d *decision) applyRefusal(a SbatchAnswer, members int) {
	r := &d.row
	switch {
	case a.Retry:
		tries := r.FailedTries + 1
		if sbatch.SaysFull(a.Words) && !r.Pack { // a smaller array may have room
			d.boundTogether(members / 2)
		}
		d.sendBack(temporaryRefusal(a.Words))
		r.FailedTries, r.DueAt = tries, d.now.Add(pauseAfter(tries))
	case r.Exclude != "": // Slurm may not know one of these nodes
		d.sendBack(refusedWithout(r.Exclude) + ": " + a.Words)
		r.AnyNode = true
	case a.OfQueue && d.refusedForQueue(a):
		d.sendBack(d.refusedFor(a))
	default:
		d.boundTogether(members / 2)
		if r.Pack { // fewer members than those side by side ask for less
			d.boundTogether(d.queue.PackSideBySide / 2)
		}
		d.sendBack("Slurm refused the array, and gets a smaller one: " + a.Words)
	}
}

// boundTogether bounds the members of the row's next submission.
func (d *decision) boundTogether(most int) {
	most = max(most, 1)
	if d.row.MostTogether == 0 || most < d.row.MostTogether {
		d.row.MostTogether = most
	}
}

// applyUnwantedPlace applies the state of the shared submission to a row that has to end.
func (d *decision) applyUnwantedPlace(p Place) {
	r := &d.row
	if p.Closed {
		r.follow(p)
	}
	switch {
	case r.Job.ID != 0:
	case p.State == Made && p.Closed:
		r.Job.ID = p.Job
	case p.State == Refused || p.Left:
		r.NoJobSince = d.now // no job was ever made
	}
}

// MayShare reports whether the row's next attempt may share a submission with other rows: one in a pack, or the first of a bundle
// in an array, where the queue has them.
func (p Policy) MayShare(r *Row) bool {
	return p.MostTogether(r) > 1 && (r.Attempt.Number == 0 || p.packs(r)) && !r.Standalone && r.Resumption.From == ""
}

// sharedWith reports whether two rows ask Slurm for the same.
func (p Policy) sharedWith(a, b *Row) bool {
	x, y := a.Resources, b.Resources
	return p.packs(a) == p.packs(b) && x.CPUs == y.CPUs && x.GPUs == y.GPUs && x.Memory == y.Memory && x.Time == y.Time && p.niceOf(a) == p.niceOf(b) && a.SickNodes == b.SickNodes && a.AnyNode == b.AnyNode &&
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

// MembersRecord returns the record of the members for the workers of the submission's tasks.
func (p Policy) MembersRecord(s *Submission) spool.Members {
	m := spool.Members{Submission: submissionID(p.Bridge, s.Generation), Attempts: make([]spool.Member, len(s.Members))}
	for i, member := range s.Members {
		m.Attempts[i] = spool.Member(member)
	}
	return m
}
