package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/spool"
)

// NewAttempt returns the row with its next attempt, named and numbered. The caller passes it to Next.
func (p Policy) NewAttempt(now time.Time, r Row, generation int64) Row {
	n := r.Attempt.Number + 1
	r.Attempt = Attempt{Number: n, OnDisk: spool.NameAttempt(n, p.Bridge), Generation: generation}
	r.SubmissionName = p.submissionName(r)
	r.Phase, r.PhaseSince, r.DueAt = Submitting, now, time.Time{}
	r.DecidedAt = now
	r.Reason = r.startReason()
	return r
}

// NewAttempts returns rows with their next attempts, which share one submission if there are several.
func (p Policy) NewAttempts(now time.Time, rows []*Row, generation int64) []Row {
	fresh := make([]Row, len(rows))
	for i, r := range rows {
		fresh[i] = p.NewAttempt(now, *r, generation)
		if len(rows) > 1 {
			fresh[i].Shared, fresh[i].Pack, fresh[i].SubmissionName = true, p.Packs(r), fresh[0].SubmissionName
		}
	}
	return fresh
}

// NewSubmission returns the submission that rows with new attempts share.
func NewSubmission(now time.Time, rows []Row) Submission {
	return Submission{Name: rows[0].SubmissionName, Generation: rows[0].Generation, Queue: rows[0].Queue, State: Gathering, Since: now, Pack: rows[0].Pack}
}

// startReason returns the reason of a row that is about to be submitted.
func (r Row) startReason() string {
	if r.Standalone {
		return fmt.Sprintf("attempt %d is started", r.Attempt.Number)
	}
	return fmt.Sprintf("attempt %d goes to Slurm", r.Attempt.Number)
}

// jobStateReason returns the sentence for the row's history about a new state of its job.
func (r Row) jobStateReason() string {
	if r.Standalone {
		return fmt.Sprintf("job %s is %s", r.Job.ID, r.Job.State)
	}
	return fmt.Sprintf("Slurm shows job %s %s", r.Job.ID, r.Job.State)
}
