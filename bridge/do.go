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
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// doer does effects, and is safe for concurrent use.
type doer struct {
	inForce   *inForce
	workerID  func(queue string) string
	hostname  string
	remote    string // the name that reports give to the place of a run; empty for the worker id
	service   BundleService
	claims    *claims
	owners    ownerNames
	secrets   *Secrets
	scheduler sbatch.Scheduler
	spool     Spool
	carrier   Carrier
	stager    Stager
	collector Collector
	alone     *turns.Turns // for small results that are not sent with others
	trials    trials
	records   *recordReader
	reports   *reports
	inbox     *inbox
	log       *slog.Logger
	now       func() time.Time
}

// do implements Bridge.Do. tell puts the outcome into the inbox. The effect counts as active until a later step
// has read its outcome: a step that does not know the outcome yet would want the effect again.
func (d *doer) do(ctx context.Context, e plan.Effect) (tell func()) {
	outcomes := d.outcomesOf(ctx, e)
	d.log.DebugContext(ctx, "effect ended", slog.String("kind", string(e.Kind)), slog.String("bundle", e.Row.Bundle), slog.Int("rows", len(e.Rows())))
	if ctx.Err() != nil && e.Kind != plan.Submit && e.Kind != plan.JoinPack {
		outcomes = none
	}
	return func() { d.inbox.putEnded(e, outcomes) }
}

// outcomes returns, for each row of an effect, the news about the effect's end.
type outcomes func(r *plan.Row) func(*plan.News)

// none are the outcomes of an effect that has nothing to report.
func none(*plan.Row) func(*plan.News) { return nothing }

func nothing(*plan.News) {}

// outcomesOf does one effect and returns its outcomes.
func (d *doer) outcomesOf(ctx context.Context, e plan.Effect) outcomes {
	switch e.Kind {
	case plan.QueryAccounting:
		return d.queryAccounting(ctx, e.Rows())
	case plan.Cancel:
		o := d.cancel(ctx, e.Rows())
		return func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.Cancelled = &o } }
	case plan.AskQueue:
		c := d.trials.askAbout(ctx, *e.Row)
		return func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.Canary = &c } }
	default: // the others are of one row
	}
	if e.Submission != nil {
		answer := d.ask(ctx, e.Submission, *e.Row)
		return func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.Submitted = &answer } }
	}
	outcome := d.doForRow(ctx, e)
	return func(*plan.Row) func(*plan.News) { return outcome }
}

// doForRow does an effect of one row and returns its outcome.
func (d *doer) doForRow(ctx context.Context, e plan.Effect) func(*plan.News) {
	r := *e.Row
	switch e.Kind {
	case plan.Claim:
		claimed := d.claim(ctx, r)
		return func(n *plan.News) { n.Claimed = &claimed }
	case plan.Stage:
		end := d.stage(ctx, r)
		return func(n *plan.News) { n.Staged, n.Progress = &end, "" }
	case plan.Carry:
		o := outcome(d.carry(ctx, r))
		return func(n *plan.News) { n.Carried, n.Progress = &o, "" }
	case plan.Prepare:
		o := d.prepare(ctx, r)
		return func(n *plan.News) { n.Prepared = &o }
	case plan.Submit:
		s := d.submit(ctx, r)
		return func(n *plan.News) {
			if n.Submitted == nil || n.Submitted.Attempt < s.Attempt {
				n.Submitted = &s
			}
		}
	case plan.ReadRecords:
		return d.records.read(r)
	case plan.Fence:
		c := d.fence(ctx, r)
		return func(n *plan.News) {
			if n.Fenced == nil || n.Fenced.Attempt <= c.Attempt {
				n.Fenced = &c
			}
		}
	case plan.StopMember:
		stopped := d.stopMember(ctx, r)
		return func(n *plan.News) { n.Stopped = &stopped }
	case plan.TellTimeLimit:
		told := d.tellTimeLimit(ctx, r)
		return func(n *plan.News) { n.TimeTold = &told }
	case plan.Collect:
		o := d.collect(ctx, e)
		return func(n *plan.News) { n.Collected, n.Progress = &o, "" }
	case plan.Confirm:
		c := d.confirm(ctx, r)
		return func(n *plan.News) { n.Confirmed = &c }
	case plan.Release:
		o := outcome(d.release(r))
		return func(n *plan.News) { n.Released = &o }
	case plan.QueryAccounting, plan.Cancel, plan.AskQueue, plan.JoinPack: // of many rows
	case plan.Forget: // Step does it
	}
	return nothing
}

func (d *doer) claim(ctx context.Context, r plan.Row) plan.Claimed {
	// confirm recognizes the bridge's own claim by this time, so all tries of one claim have
	// the same. The server also takes it for the time of the last report
	// (codalab/model/bundle_model.py: transition_bundle_preparing), so a bundle that is
	// claimed again later has a new one.
	start := codalab.StartBundle{Hostname: d.hostname, StartTime: r.OfferedAt.Unix()}
	if r.Phase != plan.Claiming {
		start.StartTime = d.now().Unix()
	}
	name, err := d.owners.nameFor(ctx, r.Run)
	if err != nil { // before the claim, because the site's table may need the name
		return plan.Claimed{Outcome: outcome(err)}
	}
	accepted, err := d.claims.start(ctx, d.workerID(r.Queue), ownerOf(plan.Effect{Row: &r}), codalab.BundleStart{UUID: r.Bundle, StartBundle: start})
	c := plan.Claimed{Outcome: outcome(err), Accepted: accepted, OwnerName: name}
	if err == nil && accepted && r.Phase == plan.Claiming {
		if name != "" {
			run := *r.Run
			run.OwnerName, r.Run = name, &run
		}
		c.Refusal = d.trials.tooLarge(ctx, r)
	}
	return c
}

// progressEvery is the least time between two reports of an effect's progress: each costs a
// check-in.
const progressEvery = time.Second

// progressOf returns a function that tells a bundle's row the progress of an effect.
func (d *doer) progressOf(bundle string) func(progress string) {
	var last time.Time
	return func(progress string) {
		now := d.now()
		if now.Sub(last) < progressEvery {
			return
		}
		last = now
		d.inbox.put(bundle, func(n *plan.News) { n.Progress = progress })
	}
}

func (d *doer) stage(ctx context.Context, r plan.Row) plan.StageEnd {
	policy := d.inForce.now()
	inputs, err := d.stager.Stage(ctx, *r.Run, policy.ImageReference(r), policy.Queues[r.Queue].Architecture, d.progressOf(r.Bundle))
	for _, dep := range inputs.Dependencies {
		if dep.Link != nil && dep.Link.Note != "" {
			d.log.WarnContext(ctx, "linked data has changed since its first use", slog.String("bundle", r.Bundle), slog.String("note", dep.Link.Note))
		}
	}
	return plan.StageEnd{Outcome: outcome(err), Inputs: inputs}
}

// carry copies the files of a bundle that is resumed for its next attempt.
func (d *doer) carry(ctx context.Context, r plan.Row) error {
	policy, progress := d.inForce.now(), d.progressOf(r.Bundle)
	from, to := r.Resumption.From, spool.NameAttempt(r.Attempt.Number+1, policy.Bridge)
	return d.carrier.Carry(ctx, r.Bundle, from, to, func(copied int) {
		progress(fmt.Sprintf("Copying the files of the interrupted attempt: %s so far.", termtext.Count(copied, "file")))
	})
}

// prepare writes what the job reads: the values of its secrets and its specification. A full disk gives the same
// sentence each time, without the names of temporary files.
func (d *doer) prepare(ctx context.Context, r plan.Row) plan.Outcome {
	o, err := d.giveSecrets(ctx, r)
	if o.Failure == "" {
		err = d.spool.Prepare(r.OnDisk, d.inForce.now().Spec(r))
		o = outcome(err)
	}
	if errno, ok := full(err); ok {
		o.Failure = "the site's disk has no room for what the job reads: " + errno.Error()
	}
	o.Generation = r.Generation
	return o
}

// submit runs sbatch, if there is still time for it. If Slurm refuses the job, it asks whether Slurm takes
// any job of the queue: without an answer nobody is at fault, and the job is refused for now.
func (d *doer) submit(ctx context.Context, r plan.Row) plan.SbatchAnswer {
	if d.now().Sub(r.SubmittedAt) > plan.SubmitWithin {
		return plan.SbatchAnswer{Attempt: r.Attempt.Number, Refused: true, Retry: true, Words: tooLate}
	}
	return d.sbatch(ctx, d.inForce.now().Request(r), r)
}

// tooLate is the reason for which sbatch is not run.
const tooLate = "Slurm is slow to take other submissions"

// sbatch runs sbatch for a request of a row.
func (d *doer) sbatch(ctx context.Context, request sbatch.Request, r plan.Row) plan.SbatchAnswer {
	end := plan.SbatchAnswer{Attempt: r.Attempt.Number}
	var err error
	end.Job, err = d.scheduler.Submit(ctx, request)
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
	switch canary := d.trials.askQueue(ctx, r.Queue); {
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
func (d *doer) queryAccounting(ctx context.Context, rows []*plan.Row) outcomes {
	asked := d.now()
	since := rows[0].SubmittedAt
	var which sbatch.Which
	named := map[plan.SubmissionName]bool{} // members of a submission share its name
	for _, r := range rows {
		if r.SubmittedAt.Before(since) {
			since = r.SubmittedAt
		}
		byName := r.Job.ID == 0 || r.Job.Submitted.IsZero() || r.SbatchCount > 1
		if byName && !named[r.SubmissionName] { // else the id says all, under any name
			named[r.SubmissionName] = true
			which.Names = append(which.Names, string(r.SubmissionName))
		}
		if r.Job.ID != 0 {
			which.IDs = append(which.IDs, r.Job.ID)
		}
	}
	jobs, err := d.scheduler.QueryAccounting(ctx, since.Add(-accountSlack), which)
	if err != nil {
		d.log.WarnContext(ctx, "accounting did not answer", errorAttr(err))
		return func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.AccountingFailure = err.Error() } }
	}
	known := newAccountedJobs(jobs)
	return func(r *plan.Row) func(*plan.News) {
		found := plan.Observation{SubmissionName: r.SubmissionName, Job: r.Job.ID, Asked: asked, Jobs: known.of(r)}
		return func(n *plan.News) { n.Accounting = &found }
	}
}

// cancel ends the jobs of many rows, which the newest snapshot shows as theirs.
func (d *doer) cancel(ctx context.Context, rows []*plan.Row) plan.Outcome {
	ids := make([]sbatch.JobID, len(rows))
	for i, r := range rows {
		ids[i] = r.Job.ID
	}
	err := d.scheduler.Cancel(ctx, "", ids...)
	if err != nil {
		d.log.WarnContext(ctx, "scancel failed", errorAttr(err))
	}
	return outcome(err)
}

// fenceWithin bounds the fencing of an attempt. The row wants it again after a failure.
const fenceWithin = 30 * time.Second

func (d *doer) fence(ctx context.Context, r plan.Row) plan.Fencing {
	ctx, cancel := context.WithTimeout(ctx, fenceWithin)
	defer cancel()
	c := plan.Fencing{Attempt: r.Attempt.Number}
	var err error
	if c.Started, err = d.spool.Fence(ctx, r.Bundle, r.OnDisk, d.now()); err != nil {
		c.Failure, c.Gone = err.Error(), errors.Is(err, spool.ErrGone)
	}
	return c
}

// tellTimeLimit tells the worker of a row's attempt the time limit of its job.
func (d *doer) tellTimeLimit(ctx context.Context, r plan.Row) plan.TimeTold {
	limits := r.TimeLimits
	told := plan.TimeTold{Attempt: r.Attempt.Number, Limit: limits.Now}
	if err := d.spool.TellTimeLimit(r.Bundle, r.OnDisk, spool.NewTimeLimit(limits.First, limits.Now)); err != nil {
		d.log.WarnContext(ctx, "the worker cannot be told the job's time limit", slog.String("bundle", r.Bundle), errorAttr(err))
		told.Failure = err.Error()
	}
	return told
}

// stopMember tells the worker of a pack to end a row's attempt.
func (d *doer) stopMember(ctx context.Context, r plan.Row) plan.Stopped {
	stopped := plan.Stopped{Attempt: r.Attempt.Number}
	if err := d.spool.StopAttempt(r.Bundle, r.OnDisk); err != nil {
		d.log.WarnContext(ctx, "the worker cannot be told to end a run", slog.String("bundle", r.Bundle), errorAttr(err))
		stopped.Failure = err.Error()
	}
	return stopped
}

// noteChanges tells the row which of the data that it used in place has changed. It compares
// before the results are first sent; later changes do not concern the bundle.
func (d *doer) noteChanges(ctx context.Context, r plan.Row) {
	if r.Staged == nil || r.FailedTries > 0 || r.DataChanged != "" || !r.Times.Finalizing.IsZero() {
		return
	}
	changed := d.stager.Changed(ctx, *r.Staged)
	if changed == "" || ctx.Err() != nil {
		return
	}
	d.log.WarnContext(ctx, "linked data has changed during a run", slog.String("bundle", r.Bundle), slog.String("note", changed))
	d.inbox.put(r.Bundle, func(n *plan.News) { n.DataChanged = changed })
}

func (d *doer) collect(ctx context.Context, e plan.Effect) plan.Outcome {
	r, policy := *e.Row, d.inForce.now()
	d.noteChanges(ctx, r)
	dir, mode := policy.Layout.RunDir(r.Bundle, r.FilesIn()), policy.Queues[r.Queue].ResultsMode
	if together, ok := d.collector.(TogetherCollector); ok && e.Measured.Small {
		if e.Measured.Tiny && together.CollectTogether(ctx, d.workerID(r.Queue), *r.Run, dir) {
			return plan.Outcome{Details: e.Measured.Details}
		}
		defer d.takeAlone(ctx, e)()
	}
	if _, err := standing(ctx, d.service, r); err != nil { // its results must not reach another bundle of its UUID
		return outcome(err)
	}
	o, err := d.collectFiles(ctx, r, dir, mode)
	if codalab.IsStatus(err, http.StatusUnauthorized, http.StatusForbidden) {
		o.Final = false // a password or a permission can be repaired, results cannot be made again
	}
	if o.Final { // on a disk that is unreachable, results are not lost
		if _, failure := d.spool.ReadRecords(r.Bundle, r.OnDisk); failure != nil {
			return outcome(failure)
		}
	}
	return o
}

// takeAlone waits for a place among the uploads of small results that are requests of their own: there are more places for
// those that wait to be sent together. It returns when ctx ends, too.
func (d *doer) takeAlone(ctx context.Context, e plan.Effect) (leave func()) {
	entered := make(chan struct{})
	ticket := d.alone.Ask(turns.Party{Owner: ownerOf(e)}, func() { close(entered) })
	await(ctx, d.inbox, e, entered)
	return ticket.Leave
}

// collectFiles collects the files of a row, or the end of its output if a user has given the others up.
func (d *doer) collectFiles(ctx context.Context, r plan.Row, dir string, mode spool.ResultsMode) (plan.Outcome, error) {
	if r.GivesUp {
		held, err := d.collector.GiveUp(ctx, *r.Run, dir, mode)
		if held != nil || err != nil {
			o := outcome(err)
			o.Held = held
			return o, err
		}
	}
	details, err := d.collector.Collect(ctx, *r.Run, dir, mode, d.progressOf(r.Bundle))
	o := outcome(err)
	if err == nil {
		o.Details = details
	}
	return o, err
}

func (d *doer) confirm(ctx context.Context, r plan.Row) plan.Confirmation {
	c := plan.Confirmation{Asked: d.now(), Carried: d.reports.carried(&r)}
	shown, err := standing(ctx, d.service, r)
	c.Carried = c.Carried || d.reports.carried(&r) // a check-in may have been sent meanwhile
	c.Outcome, c.State, c.UploadFailure = outcome(err), shown.State, shown.UploadFailure
	claimed := shown.Remote == d.hostname && shown.Started == r.OfferedAt.Unix()
	named := d.remote != "" && shown.Remote == d.remote
	c.Here = claimed || named || shown.Remote == d.workerID(r.Queue) // which its reports name
	return c
}

// release removes a bundle's files from the shared disk. The cache's copies of its inputs stay.
func (d *doer) release(r plan.Row) error {
	if err := d.spool.Release(r.Bundle); err != nil {
		return fmt.Errorf("remove files of bundle %s: %w", r.Bundle, err)
	}
	return nil
}
