package plan

import (
	"fmt"
	"strconv"
	"strings"
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

// submissionName returns a name that no other submission has: its generation and its bridge make it
// unique. The other parts are for people who read squeue. Clients choose UUIDs, so bundles may share the
// digits.
func (p Policy) submissionName(r Row) SubmissionName {
	digits := r.Bundle
	if len(digits) > 14 {
		digits = digits[2:14]
	}
	submission := strconv.Itoa(r.Attempt.Number) + "-" + strconv.FormatInt(r.Generation, 10)
	return SubmissionName("cl-" + cleanName(p.Owner) + "-" + digits + "." + submission + "-" + p.Bridge)
}

// isName reports whether a job's name is the name of one of this bridge's submissions.
func (p Policy) isName(name string) bool {
	return strings.HasPrefix(name, "cl-"+cleanName(p.Owner)+"-") && strings.HasSuffix(name, "-"+p.Bridge)
}

// cleanName replaces each group of characters that do not belong in a job's name by one "_".
func cleanName(name string) string {
	odd := func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}
	if !strings.ContainsFunc(name, odd) {
		return name // the usual case, without allocation
	}
	return strings.Join(strings.FieldsFunc(name, odd), "_")
}
