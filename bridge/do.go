package bridge

import (
	"cmp"
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

// Do does one effect that Step returned, and returns how to tell its outcome:
// tell is called once, and from then on Step may want the same effect again. An
// effect that ctx cut short has nothing to tell, but for Submit's; its row is
// decided all the same, as it may want the effect again that was still running.
func (b *Bridge) Do(ctx context.Context, e plan.Effect) (tell func()) {
	outcome := b.do(ctx, e)
	b.Log.DebugContext(ctx, "effect ended", slog.String("kind", string(e.Kind)), slog.String("bundle", e.Row.Bundle))
	cut := ctx.Err() != nil && e.Kind != plan.Submit
	return func() {
		if cut {
			outcome = nothing
		}
		b.ended(e, outcome)
	}
}

// nothing is the outcome of an effect that has nothing to tell.
func nothing(*plan.News) {}

// ended tells an effect's row that it has ended. A job that no row stands for
// is told nothing.
func (b *Bridge) ended(e plan.Effect, outcome func(*plan.News)) {
	b.running.end(e)
	if e.Row.Bundle != "" {
		b.inbox.put(e.Row.Bundle, outcome)
	}
}

// do does one effect and returns what it is to say to its row.
func (b *Bridge) do(ctx context.Context, e plan.Effect) func(*plan.News) {
	r := *e.Row
	switch e.Kind {
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
	case plan.QueryAccounting:
		return b.queryAccounting(ctx, r)
	case plan.ReadRecords:
		return b.look(r.Bundle, r.Attempt)
	case plan.Fence:
		c := b.fence(ctx, r)
		return func(n *plan.News) {
			if n.Fenced == nil || n.Fenced.Attempt <= c.Attempt {
				n.Fenced = &c
			}
		}
	case plan.Cancel:
		name := cmp.Or(r.Job.Name, string(r.SubmissionName)) // what it is called now: jobs can be renamed
		o := outcome(b.Scheduler.Cancel(ctx, r.Job.ID, name))
		return func(n *plan.News) { n.Cancelled = &o }
	case plan.Collect:
		o := b.collect(ctx, r)
		return func(n *plan.News) { n.Collected, n.Progress = &o, "" }
	case plan.Confirm:
		c := b.confirm(ctx, r)
		return func(n *plan.News) { n.Confirmed = &c }
	case plan.Release:
		o := outcome(b.release(r))
		return func(n *plan.News) { n.Released = &o }
	case plan.Forget: // Step's own
	}
	return nothing
}

func (b *Bridge) claim(ctx context.Context, r plan.Row) plan.Claimed {
	// confirm knows the bridge's own claim by this time, so each try of the claim has
	// the same one. The server also takes it for the time of the last report
	// (codalab/model/bundle_model.py: transition_bundle_preparing), so a bundle that
	// is claimed again later has a new one.
	start := codalab.StartBundle{Hostname: b.Hostname, StartTime: r.Claimed.Unix()}
	if r.Phase != plan.Claiming {
		start.StartTime = b.Now().Unix()
	}
	accepted, err := b.Service.StartBundle(ctx, b.Identity(r.Queue), r.Bundle, start)
	return plan.Claimed{Outcome: outcome(err), Accepted: accepted}
}

// progressEvery is the least time between two sentences about an effect that
// are passed on: each costs a check-in.
const progressEvery = time.Second

// tell returns what tells a bundle's row how far an effect is.
func (b *Bridge) tell(bundle string) func(progress string) {
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
	inputs, err := b.Stager.Stage(ctx, *r.Run, b.Policy.Image(r), b.Policy.Queues[r.Queue].Architecture, b.tell(r.Bundle))
	for _, d := range inputs.Dependencies {
		if d.Link != nil && d.Link.Note != "" {
			b.Log.WarnContext(ctx, "linked data is not as it was", slog.String("bundle", r.Bundle), slog.String("note", d.Link.Note))
		}
	}
	return plan.StageEnd{Outcome: outcome(err), Inputs: inputs}
}

// prepare writes what the job reads. That there is no room for it is said in the
// same words each time, without the names of temporaries.
func (b *Bridge) prepare(r plan.Row) plan.Outcome {
	err := b.Spool.Prepare(b.Policy.Spec(r))
	o := outcome(err)
	if errno, ok := full(err); ok {
		o.Failure = "the site's disk has no room for what the job reads: " + errno.Error()
	}
	return o
}

// submit runs sbatch, if there is time left for that.
func (b *Bridge) submit(ctx context.Context, r plan.Row) plan.Submission {
	end := plan.Submission{Attempt: r.Attempt}
	if b.Now().Sub(r.Submitted) > plan.SubmitWithin {
		end.Refused, end.Retry, end.Words = true, true, "Slurm is slow to take other submissions"
		return end
	}
	var err error
	end.Job, err = b.Scheduler.Submit(ctx, b.Policy.Request(r))
	var refused *sbatch.Error
	switch {
	case err == nil:
	case errors.As(err, &refused):
		end.Refused, end.Retry, end.Words = refused.Refused, refused.Retry, refused.Message
	default:
		end.Words = err.Error()
	}
	return end
}

// accountSlack covers clocks that do not agree: sacct's window begins that
// much before a submission.
const accountSlack = time.Hour

func (b *Bridge) queryAccounting(ctx context.Context, r plan.Row) func(*plan.News) {
	asked := b.Now()
	jobs, err := b.Scheduler.QueryAccounting(ctx, r.Submitted.Add(-accountSlack), []string{string(r.SubmissionName)})
	if err != nil {
		b.Log.WarnContext(ctx, "accounting did not answer", errorAttr(err))
		return func(n *plan.News) { n.AccountingFailure = err.Error() }
	}
	found := plan.Observation{SubmissionName: r.SubmissionName, Asked: asked, Jobs: sbatch.Snapshot{Jobs: jobs}.ByName()[string(r.SubmissionName)]}
	return func(n *plan.News) { n.Accounting = &found }
}

// closeWithin bounds the closing of an attempt; the row wants it again.
const closeWithin = 30 * time.Second

func (b *Bridge) fence(ctx context.Context, r plan.Row) plan.Fencing {
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	c := plan.Fencing{Attempt: r.Attempt}
	var err error
	if c.Standing, err = b.Spool.Fence(ctx, r.Bundle, r.Attempt, b.Now()); err != nil {
		c.Failure, c.Gone = err.Error(), errors.Is(err, spool.ErrGone)
	}
	return c
}

// look reads an attempt's records. Those that the disk does not give out make
// the look a failure, which shows no absence.
func (b *Bridge) look(bundle string, attempt int) func(*plan.News) {
	rec := plan.Records{Attempt: attempt, Read: b.Now()}
	var err error
	rec.Records, err = b.Spool.Look(bundle, attempt)
	return func(n *plan.News) {
		if err != nil {
			rec.Read, n.RecordsFailure = time.Time{}, err.Error()
		}
		n.AddRecords(rec)
	}
}

// compare tells the row what has changed of the data that it used in place. It
// does so before the results are first sent, and not once they were: what
// changes after a bundle's end is no concern of its.
func (b *Bridge) compare(ctx context.Context, r plan.Row) {
	if r.Staged == nil || r.Tries > 0 || r.Changed != "" || !r.Times.Finalizing.IsZero() {
		return
	}
	changed := b.Stager.Changed(ctx, *r.Staged)
	if changed == "" || ctx.Err() != nil {
		return
	}
	b.Log.WarnContext(ctx, "linked data has changed under a bundle", slog.String("bundle", r.Bundle), slog.String("note", changed))
	b.inbox.put(r.Bundle, func(n *plan.News) { n.Changed = changed })
}

func (b *Bridge) collect(ctx context.Context, r plan.Row) plan.Outcome {
	b.compare(ctx, r)
	how := b.Policy.Queues[r.Queue].Results
	delivered, err := b.Collector.Collect(ctx, *r.Run, b.Policy.Layout.RunDir(r.Bundle, r.Attempt), how, b.tell(r.Bundle))
	o := outcome(err)
	if err == nil {
		o.Done = delivered
	}
	var answer *codalab.Error
	if errors.As(err, &answer) && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden) {
		o.Final = false // a password or a permission may be put right; results are not to be had again
	}
	if o.Final { // what is missing where the disk is not there is not gone
		if _, away := b.Spool.Look(r.Bundle, r.Attempt); away != nil {
			return outcome(away)
		}
	}
	return o
}

func (b *Bridge) confirm(ctx context.Context, r plan.Row) plan.Confirmation {
	c := plan.Confirmation{Asked: b.Now(), Carried: b.view.carried(r)}
	shown, err := b.Service.Standing(ctx, r.Bundle)
	c.Carried = c.Carried || b.view.carried(r) // a check-in may have been sent meanwhile
	c.Outcome, c.State, c.Lost = outcome(err), shown.State, shown.UploadFailure
	claimed := shown.Remote == b.Hostname && shown.Started == r.Claimed.Unix()
	c.Here = claimed || shown.Remote == b.Identity(r.Queue) // which its reports name
	return c
}

// release removes all that the shared disk holds of a bundle, but not what
// the cache holds of its inputs.
func (b *Bridge) release(r plan.Row) error {
	marks := b.Policy.SubmissionNames(r)
	names := make([]string, len(marks))
	for i, m := range marks {
		names[i] = string(m)
	}
	if err := b.Spool.Release(r.Bundle, names); err != nil {
		return fmt.Errorf("remove files of bundle %s: %w", r.Bundle, err)
	}
	return nil
}
