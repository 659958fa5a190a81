package plan

import (
	"cmp"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Place tells a row of the submission that it shares.
type Place struct {
	State SubmissionState
	// Left is set if the list of members was closed without the row.
	Left bool `json:",omitempty"`
	// Closed is set if the list of members is closed and has the row, at Index.
	Closed bool `json:",omitempty"`
	Index  int  `json:",omitempty"`
	// Begun is set if a member of a pack is known to have begun.
	Begun bool `json:",omitempty"`
	// Members is the number of members.
	Members     int       `json:",omitempty"`
	SubmittedAt time.Time `json:",omitzero"`
	// SbatchCount counts the decisions to run sbatch: more than one may have made more than one job or array.
	SbatchCount int `json:",omitempty"`
	// Job is the row's job once the submission is made, and Accepted the time at which Slurm accepted it, if that is known.
	Job      sbatch.JobID  `json:",omitempty"`
	Accepted time.Time     `json:",omitzero"`
	Refusal  *SbatchAnswer `json:",omitempty"`
	// Words are Slurm's last words that were no acceptance.
	Words string `json:",omitempty"`
	// DueAt and FailedTries are those of the submission.
	DueAt       time.Time `json:",omitzero"`
	FailedTries int       `json:",omitempty"`
	// Joins is set if the row joins a pack that runs.
	Joins bool `json:",omitempty"`
}

// PlaceOf returns the place of an attempt in the submission. index has the places of all members, by their bundles.
func (s *Submission) PlaceOf(r *Row, index map[string]int) Place {
	i, ok := index[r.Bundle]
	ok = ok && s.Members[i].Name == r.OnDisk
	job := s.Array
	if s.Array != 0 && !s.Pack {
		job = s.Array.Task(i)
	}
	submitted, count := s.SubmittedAt, s.SbatchCount
	if s.Joining != nil && !submitted.IsZero() { // they have a meaning for the pack's job
		submitted, count = s.Joining.SubmittedAt, 1
	}
	return Place{
		State: s.State, Left: !ok && s.State != Gathering && s.State != Doubtful, Closed: ok, Index: i, Begun: s.Begun, Members: len(s.Members), SubmittedAt: submitted,
		SbatchCount: count, Job: job, Accepted: s.Accepted, Refusal: s.Refusal, Words: cmp.Or(s.RepeatRefusal, s.LastFailure),
		DueAt: s.DueAt, FailedTries: s.FailedTries, Joins: s.Joining != nil,
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
		d.nextAttempt("Slurm gave no clear answer to the submission with others, and has no such job: " + place.Words)
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
	case p.State == Made && p.Joins:
		d.adopt(sbatch.Job{ID: p.Job, Name: string(r.SubmissionName), State: sbatch.StatePending, Reason: "None"}, "it has joined a pack that runs")
	case p.State == Refused && p.Joins:
		d.sendBack("the pack that it was to join has no more work, and ends")
	case p.State == Asked && p.Joins && p.Words != "":
		r.Reason = "it cannot join its pack yet: " + p.Words
	case p.State == Made:
		d.adopt(sbatch.Job{ID: p.Job, Name: string(r.SubmissionName), State: sbatch.StatePending, Reason: "None", Submitted: p.Accepted}, "sbatch accepted it together with others")
	case p.State == Refused && p.Refusal != nil:
		d.applyRefusal(*p.Refusal, p.Members)
	case p.State == Asked && p.Words != "" && p.SubmittedAt.IsZero():
		r.Reason = temporaryRefusal(p.Words)
	case p.State == Asked && p.Words != "":
		r.Reason = unclearAnswer(p.Words)
	}
}

// follow notes in a member's row what its later phases need of the submission.
func (r *Row) follow(p Place) {
	r.Index, r.SbatchCount = p.Index, p.SbatchCount
	r.SubmittedAt = cmp.Or(p.SubmittedAt, r.SubmittedAt)
}

// applyRefusal applies Slurm's refusal of a submission with so many members. None of them is at fault: they are submitted again, fewer
// at a time, down to one by one.
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
		d.sendBack("Slurm refused it together with others, and gets fewer at a time: " + a.Words)
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
		r.Job.ID, r.Job.Submitted = p.Job, p.Accepted
	case (p.State == Refused || p.Left) && r.NoJobSince.IsZero(): // each decision is told, and the first one counts
		r.NoJobSince = d.now // no job was ever made
	}
}

// mayBeMade reports whether the row shares a submission of which it is not known yet whether it has made a job for the row.
func (d *decision) mayBeMade() bool {
	p := d.news.Submission
	return d.row.Shared && d.row.Job.ID == 0 && p != nil && (p.State == Gathering || p.State == Asked)
}

// WantsShared reports whether a row waits for its shared submission.
func (r *Row) WantsShared() bool { return r.Phase == Submitting && r.StopVerdict == nil }

// PreparesShared reports whether a row's specification for its shared submission is still to be written.
func (r *Row) PreparesShared() bool { return r.Shared && r.WantsShared() && !r.Prepared }
