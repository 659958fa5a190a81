package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Explanation has a bundle's row and its history, for operators.
type Explanation struct {
	Bundle string `json:"bundle"`
	// Name is the bundle's name; empty for a forgotten one.
	Name string `json:"name,omitempty"`
	// Forgotten is set for a bundle that has no row any more, only a history.
	Forgotten bool         `json:"forgotten"`
	Queue     string       `json:"queue,omitempty"`
	Phase     plan.Phase   `json:"phase,omitempty"`
	Since     time.Time    `json:"since,omitzero"`
	Reason    string       `json:"reason,omitempty"`
	WaitsFor  string       `json:"waits_for,omitempty"`
	Due       time.Time    `json:"due,omitzero"`
	Tries     int          `json:"tries,omitempty"`
	Trouble   string       `json:"trouble,omitempty"`
	Attempt   int          `json:"attempt"`
	Job       sbatch.JobID `json:"job,omitempty"`
	JobState  sbatch.State `json:"job_state,omitempty"`
	JobReason string       `json:"job_reason,omitempty"`
	Node      string       `json:"node,omitempty"`
	// Avoids lists the nodes on which the next job, or the one that is queued, must not run.
	Avoids  string        `json:"avoids,omitempty"`
	Verdict *plan.Verdict `json:"verdict,omitempty"`
	// Used is the usage of the attempt, once it has ended.
	Used *spool.Usage `json:"used,omitempty"`
	// Ran names the runtime that ran the container, and the reason for the choice.
	Ran spool.Ran `json:"ran,omitzero"`
	// Notes report data that changed while a bundle used it in place, and differences of this run from others.
	Notes []string `json:"notes,omitempty"`

	History []ledger.Entry `json:"history"`
}

// Explain returns what the ledger knows of a bundle. It fails for a bundle without a row
// and without a history; name is that of the ledger, for the error.
func Explain(ctx context.Context, r *ledger.Reader, name, bundle string) (Explanation, error) {
	e := Explanation{Bundle: bundle}
	row, err := r.Row(ctx, bundle)
	switch {
	case errors.Is(err, ledger.ErrAbsent):
		e.Forgotten = true
	case err != nil:
		return e, err
	default:
		e.addRow(row)
	}
	e.History, err = r.History(ctx, bundle)
	if err == nil && e.Forgotten && len(e.History) == 0 {
		err = fmt.Errorf("no bundle %s in the ledger %s: this bridge has not had it, or has forgotten it longer ago than keep_history", bundle, name)
	}
	return e, err
}

func (e *Explanation) addRow(row plan.Row) {
	if row.Run != nil {
		e.Name = row.Run.Metadata.String("name")
	}
	e.Queue, e.Phase, e.Since, e.Reason = row.Queue, row.Phase, row.PhaseSince, row.Reason
	e.WaitsFor, e.Due, e.Tries, e.Trouble = waitsFor(row), row.DueAt, row.FailedTries, row.LastFailure
	e.Attempt, e.Job, e.JobState, e.JobReason = row.Attempt.Number, row.Job.ID, row.Job.State, row.Job.Reason
	e.Verdict, e.Notes = row.Verdict, row.Notes()
	if row.Verdict != nil && !row.Job.State.Ended() { // the last snapshot was before the end
		e.JobState, e.JobReason = "", ""
	}
	if row.Begun != nil {
		e.Node = row.Node()
	}
	switch {
	case row.Standalone:
	case row.Phase == plan.Submitting, row.Phase == plan.Queued:
		e.Avoids = row.Exclude
	case row.Phase == plan.Staging && !row.AnyNode:
		e.Avoids = row.SickNodes
	}
	if row.Exit != nil {
		e.Used, e.Ran = &row.Exit.Usage, row.Exit.Ran
		if row.Exit.Note != "" {
			e.Notes = append(e.Notes, row.Exit.Note)
		}
	}
}

// waitsFor returns the event for which a row waits.
func waitsFor(r plan.Row) string {
	job := "its job"
	if r.Job.ID != 0 {
		job = "job " + r.Job.ID.String()
	}
	switch r.Phase {
	case plan.Claiming:
		return "the server's answer to the claim"
	case plan.Staging:
		if r.DiskLow != "" {
			return "the shared disk: " + r.DiskLow
		}
		if r.Staged == nil {
			return "its image and its dependencies, which are being brought in"
		}
		if r.NeedsDisk() {
			return "a copy of its files for the next attempt, because it is resumed"
		}
		if r.Held != "" {
			return "Slurm, or its nodes: " + r.Held
		}
		return "room in Slurm: the queue's max_in_flight, and the rate at which jobs are submitted"
	case plan.Submitting:
		return "sbatch's answer, or Slurm to show whether there is a job of the name " + string(r.SubmissionName)
	case plan.Queued:
		return "Slurm to start " + job
	case plan.Running:
		if !r.CommandBegan {
			return "the worker to set the container up and to begin the command"
		}
		return "the command to end"
	case plan.Stopping:
		return job + " to go away"
	case plan.Collecting:
		return "its results to reach the server"
	case plan.Finalizing:
		return "the server to acknowledge the result"
	case plan.Done:
		return "nothing; its files are kept for a while"
	}
	return "nothing that this version of cl-bridge knows"
}
