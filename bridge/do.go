package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Do does one effect that Step returned, and returns a function that reports the outcome. The
// caller calls tell once; from then on Step may want the same effect again. An effect that ctx
// cut short has no outcome, except for Submit's; its row is decided all the same, since it may
// still want the effect.
func (b *Bridge) Do(ctx context.Context, e plan.Effect) (tell func()) {
	outcomes := b.do(ctx, e)
	b.Log.DebugContext(ctx, "effect ended", slog.String("kind", string(e.Kind)), slog.String("bundle", e.Row.Bundle), slog.Int("rows", len(e.Rows())))
	if ctx.Err() != nil && e.Kind != plan.Submit {
		outcomes = none
	}
	return func() { b.ended(e, outcomes) }
}

// outcomes gives each row of an effect the news of how it ended.
type outcomes func(r *plan.Row) func(*plan.News)

// none are the outcomes of an effect that has nothing to report.
func none(*plan.Row) func(*plan.News) { return nothing }

func nothing(*plan.News) {}

// ended tells an effect's rows that it has ended. The effect counts as active until the next step has
// read its outcome: a step that does not know the outcome yet would want the effect again.
func (b *Bridge) ended(e plan.Effect, of outcomes) { b.inbox.putEnded(e, of) }

// arrived returns what arrived since the last step.
func (b *Bridge) arrived() arrivals {
	in := b.inbox.drain()
	for _, e := range in.ended {
		delete(b.active.calls, e.Kind)
		for _, r := range e.Rows() {
			b.active.end(plan.Effect{Kind: e.Kind, Row: r})
		}
	}
	return in
}

// do does one effect and returns its outcomes.
func (b *Bridge) do(ctx context.Context, e plan.Effect) outcomes {
	switch e.Kind {
	case plan.QueryAccounting:
		return b.queryAccounting(ctx, e.Rows())
	case plan.Cancel:
		o := b.cancel(ctx, e.Rows())
		return func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.Cancelled = &o } }
	default: // the others are of one row
	}
	outcome := b.doForRow(ctx, e.Kind, *e.Row)
	return func(*plan.Row) func(*plan.News) { return outcome }
}

// doForRow does an effect of one row and returns its outcome.
func (b *Bridge) doForRow(ctx context.Context, k plan.Kind, r plan.Row) func(*plan.News) {
	switch k {
	case plan.Claim:
		claimed := b.claim(ctx, r)
		return func(n *plan.News) { n.Claimed = &claimed }
	case plan.Stage:
		end := b.stage(ctx, r)
		return func(n *plan.News) { n.Staged, n.Progress = &end, "" }
	case plan.Prepare:
		o := b.prepare(r)
		return func(n *plan.News) { n.Prepared = &o }
	case plan.Submit:
		s := b.submit(ctx, r)
		return func(n *plan.News) {
			if n.Submitted == nil || n.Submitted.Attempt < s.Attempt {
				n.Submitted = &s
			}
		}
	case plan.AskQueue:
		c := b.askQueue(ctx, r.Queue)
		return func(n *plan.News) { n.Canary = &c }
	case plan.ReadRecords:
		return b.readRecords(r)
	case plan.Fence:
		c := b.fence(ctx, r)
		return func(n *plan.News) {
			if n.Fenced == nil || n.Fenced.Attempt <= c.Attempt {
				n.Fenced = &c
			}
		}
	case plan.Collect:
		o := b.collect(ctx, r)
		return func(n *plan.News) { n.Collected, n.Progress = &o, "" }
	case plan.Confirm:
		c := b.confirm(ctx, r)
		return func(n *plan.News) { n.Confirmed = &c }
	case plan.Release:
		o := outcome(b.release(r))
		return func(n *plan.News) { n.Released = &o }
	case plan.QueryAccounting, plan.Cancel: // of many rows
	case plan.Forget: // Step does it
	}
	return nothing
}

func (b *Bridge) claim(ctx context.Context, r plan.Row) plan.Claimed {
	// confirm recognizes the bridge's own claim by this time, so all tries of one claim have
	// the same. The server also takes it for the time of the last report
	// (codalab/model/bundle_model.py: transition_bundle_preparing), so a bundle that is
	// claimed again later has a new one.
	start := codalab.StartBundle{Hostname: b.Hostname, StartTime: r.OfferedAt.Unix()}
	if r.Phase != plan.Claiming {
		start.StartTime = b.Now().Unix()
	}
	accepted, err := b.Service.StartBundle(ctx, b.Identity(r.Queue), r.Bundle, start)
	c := plan.Claimed{Outcome: outcome(err), Accepted: accepted}
	if err == nil && accepted && r.Phase == plan.Claiming {
		c.Refusal = b.tooLarge(ctx, r)
	}
	return c
}

// progressEvery is the least time between two reports of an effect's progress: each costs a
// check-in.
const progressEvery = time.Second

// progressOf returns a function that tells a bundle's row the progress of an effect.
func (b *Bridge) progressOf(bundle string) func(progress string) {
	var last time.Time
	return func(progress string) {
		now := b.Now()
		if now.Sub(last) < progressEvery {
			return
		}
		last = now
		b.inbox.put(bundle, func(n *plan.News) { n.Progress = progress })
	}
}

func (b *Bridge) stage(ctx context.Context, r plan.Row) plan.StageEnd {
	inputs, err := b.Stager.Stage(ctx, *r.Run, b.Policy.Image(r), b.Policy.Queues[r.Queue].Architecture, b.progressOf(r.Bundle))
	for _, d := range inputs.Dependencies {
		if d.Link != nil && d.Link.Note != "" {
			b.Log.WarnContext(ctx, "linked data has changed since its first use", slog.String("bundle", r.Bundle), slog.String("note", d.Link.Note))
		}
	}
	return plan.StageEnd{Outcome: outcome(err), Inputs: inputs}
}

// prepare writes the job's specification. A full disk gives the same sentence each time,
// without the names of temporary files.
func (b *Bridge) prepare(r plan.Row) plan.Outcome {
	err := b.Spool.Prepare(r.OnDisk, b.Policy.Spec(r))
	o := outcome(err)
	if errno, ok := full(err); ok {
		o.Failure = "the site's disk has no room for what the job reads: " + errno.Error()
	}
	return o
}

// submit runs sbatch, if there is still time for it. If Slurm refuses the job, it asks whether Slurm takes
// any job of the queue: without an answer nobody is at fault, and the job is refused for now.
func (b *Bridge) submit(ctx context.Context, r plan.Row) plan.Submission {
	end := plan.Submission{Attempt: r.Attempt.Number}
	if b.Now().Sub(r.SubmittedAt) > plan.SubmitWithin {
		end.Refused, end.Retry, end.Words = true, true, "Slurm is slow to take other submissions"
		return end
	}
	var err error
	end.Job, err = b.Scheduler.Submit(ctx, b.Policy.Request(r))
	var refused *sbatch.Error
	switch {
	case err == nil:
		return end
	case errors.As(err, &refused):
		end.Refused, end.Retry, end.OfSite, end.Words = refused.Refused, refused.Retry, refused.OfSite, refused.Message
	default:
		end.Words = err.Error()
	}
	if !end.Refused || end.Retry || r.Exclude != "" { // without the excluded nodes it is tried again first
		return end
	}
	switch canary := b.askQueue(ctx, r.Queue); {
	case canary.Failure != "":
		end.Retry = true
	case canary.Refusal != "":
		end.OfQueue = true
	}
	return end
}

// accountSlack covers clocks that differ: sacct's window begins that much before a submission.
const accountSlack = time.Hour

// queryAccounting asks the accounting database for the jobs of many rows.
func (b *Bridge) queryAccounting(ctx context.Context, rows []*plan.Row) outcomes {
	asked := b.Now()
	since := rows[0].SubmittedAt
	var which sbatch.Which
	for _, r := range rows {
		if r.SubmittedAt.Before(since) {
			since = r.SubmittedAt
		}
		byName := r.Job.ID == 0 || r.Job.Submitted.IsZero() || r.SbatchCount > 1
		if byName { // else the id says all, under any name
			which.Names = append(which.Names, string(r.SubmissionName))
		}
		if r.Job.ID != 0 {
			which.IDs = append(which.IDs, r.Job.ID)
		}
	}
	jobs, err := b.Scheduler.QueryAccounting(ctx, since.Add(-accountSlack), which)
	if err != nil {
		b.Log.WarnContext(ctx, "accounting did not answer", errorAttr(err))
		return func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.AccountingFailure = err.Error() } }
	}
	return func(r *plan.Row) func(*plan.News) {
		found := plan.Observation{SubmissionName: r.SubmissionName, Job: r.Job.ID, Asked: asked}
		for _, j := range jobs {
			if j.ID == r.Job.ID || j.Name == string(r.SubmissionName) {
				found.Jobs = append(found.Jobs, j)
			}
		}
		return func(n *plan.News) { n.Accounting = &found }
	}
}

// cancel ends the jobs of many rows, which the newest snapshot shows as theirs.
func (b *Bridge) cancel(ctx context.Context, rows []*plan.Row) plan.Outcome {
	ids := make([]sbatch.JobID, len(rows))
	for i, r := range rows {
		ids[i] = r.Job.ID
	}
	err := b.Scheduler.Cancel(ctx, "", ids...)
	if err != nil {
		b.Log.WarnContext(ctx, "scancel failed", errorAttr(err))
	}
	return outcome(err)
}

// fenceWithin bounds the fencing of an attempt. The row wants it again after a failure.
const fenceWithin = 30 * time.Second

func (b *Bridge) fence(ctx context.Context, r plan.Row) plan.Fencing {
	ctx, cancel := context.WithTimeout(ctx, fenceWithin)
	defer cancel()
	c := plan.Fencing{Attempt: r.Attempt.Number}
	var err error
	if c.Standing, err = b.Spool.Fence(ctx, r.Bundle, r.OnDisk, b.Now()); err != nil {
		c.Failure, c.Gone = err.Error(), errors.Is(err, spool.ErrGone)
	}
	return c
}

// readRecords reads an attempt's records. If the disk does not give one out, the reading fails
// and proves no absence.
func (b *Bridge) readRecords(r plan.Row) func(*plan.News) {
	rec := plan.Records{Attempt: r.Attempt.Number, Read: b.Now()}
	var err error
	rec.Records, err = b.Spool.ReadRecords(r.Bundle, r.OnDisk)
	return func(n *plan.News) {
		if err != nil {
			rec.Read, n.RecordsFailure = time.Time{}, err.Error()
		}
		n.AddRecords(rec)
	}
}

// noteChanges tells the row which of the data that it used in place has changed. It compares
// before the results are first sent; later changes do not concern the bundle.
func (b *Bridge) noteChanges(ctx context.Context, r plan.Row) {
	if r.Staged == nil || r.FailedTries > 0 || r.DataChanged != "" || !r.Times.Finalizing.IsZero() {
		return
	}
	changed := b.Stager.Changed(ctx, *r.Staged)
	if changed == "" || ctx.Err() != nil {
		return
	}
	b.Log.WarnContext(ctx, "linked data has changed during a run", slog.String("bundle", r.Bundle), slog.String("note", changed))
	b.inbox.put(r.Bundle, func(n *plan.News) { n.DataChanged = changed })
}

func (b *Bridge) collect(ctx context.Context, r plan.Row) plan.Outcome {
	b.noteChanges(ctx, r)
	if _, err := b.standing(ctx, r); err != nil { // its results must not reach another bundle of its UUID
		return outcome(err)
	}
	how := b.Policy.Queues[r.Queue].Results
	delivered, err := b.Collector.Collect(ctx, *r.Run, b.Policy.Layout.RunDir(r.Bundle, r.OnDisk), how, b.progressOf(r.Bundle))
	o := outcome(err)
	if err == nil {
		o.Done = delivered
	}
	var answer *codalab.Error
	if errors.As(err, &answer) && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden) {
		o.Final = false // a password or a permission can be repaired, results cannot be made again
	}
	if o.Final { // on a disk that is unreachable, results are not lost
		if _, failure := b.Spool.ReadRecords(r.Bundle, r.OnDisk); failure != nil {
			return outcome(failure)
		}
	}
	return o
}

func (b *Bridge) confirm(ctx context.Context, r plan.Row) plan.Confirmation {
	c := plan.Confirmation{Asked: b.Now(), Carried: b.reports.carried(&r)}
	shown, err := b.standing(ctx, r)
	c.Carried = c.Carried || b.reports.carried(&r) // a check-in may have been sent meanwhile
	c.Outcome, c.State, c.Lost = outcome(err), shown.State, shown.UploadFailure
	claimed := shown.Remote == b.Hostname && shown.Started == r.OfferedAt.Unix()
	named := b.Standalone != nil && b.Standalone.Remote != "" && shown.Remote == b.Standalone.Remote
	c.Here = claimed || named || shown.Remote == b.Identity(r.Queue) // which its reports name
	return c
}

// standing asks the server for a row's bundle. If the server has another one of its UUID, the row's
// is gone. Its owner may have given it to somebody else (cl chown).
func (b *Bridge) standing(ctx context.Context, r plan.Row) (codalab.Standing, error) {
	shown, err := b.Service.Standing(ctx, r.Bundle)
	asked := r.Run.Identity()
	asked.OwnerID = ""
	if err == nil && !shown.Identity.Same(asked) {
		err = &codalab.Error{Method: "GET", Path: "/bundles/" + r.Bundle, Status: http.StatusNotFound, Message: "the bundle was deleted, and another one has its UUID"}
	}
	if err != nil {
		return codalab.Standing{}, err
	}
	return shown, nil
}

// release removes a bundle's files from the shared disk. The cache's copies of its inputs stay.
func (b *Bridge) release(r plan.Row) error {
	submissions := append(b.Policy.OldSubmissionNames(r), r.SubmissionName)
	names := make([]string, len(submissions))
	for i, name := range submissions {
		names[i] = string(name)
	}
	if err := b.Spool.Release(r.Bundle, names); err != nil {
		return fmt.Errorf("remove files of bundle %s: %w", r.Bundle, err)
	}
	return nil
}
