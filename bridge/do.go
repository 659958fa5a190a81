package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// do does one effect and returns what it is to say to its row.
func (b *Bridge) do(ctx context.Context, e plan.Effect) func(*plan.News) {
	r := e.Row
	switch e.Kind {
	case plan.Claim:
		claimed := b.claim(ctx, r)
		return func(n *plan.News) { n.Claimed = &claimed }
	case plan.Stage:
		end := b.stage(ctx, r)
		return func(n *plan.News) { n.Staged, n.Progress = &end, "" }
	case plan.Submit:
		s := b.submit(ctx, r)
		return func(n *plan.News) {
			if n.Submitted == nil || n.Submitted.Attempt < s.Attempt {
				n.Submitted = &s
			}
		}
	case plan.Account:
		return b.account(ctx, r)
	case plan.Look:
		return b.look(r.Bundle, r.Attempt, time.Now()) //nolint:forbidigo // when a question is asked is part of its answer
	case plan.Close:
		c := b.close(ctx, r)
		return func(n *plan.News) { n.Closed = &c }
	case plan.Cancel:
		o := outcome(b.Scheduler.Cancel(ctx, r.Job.ID, string(r.Mark)))
		return func(n *plan.News) { n.Cancelled = &o }
	case plan.Collect:
		o := b.collect(ctx, r)
		return func(n *plan.News) { n.Collected = &o }
	case plan.Release:
		o := outcome(b.release(r))
		return func(n *plan.News) { n.Released = &o }
	case plan.Forget: // done by begin
	}
	return func(*plan.News) {}
}

func (b *Bridge) claim(ctx context.Context, r plan.Row) plan.Claimed {
	accepted, err := b.Service.StartBundle(ctx, b.identity(r.Queue), r.Bundle, b.started(r.Claimed))
	return plan.Claimed{Outcome: outcome(err), Accepted: accepted}
}

// progressEvery is the least time between two sentences about a staging that
// are passed on: each costs a check-in.
const progressEvery = time.Second

func (b *Bridge) stage(ctx context.Context, r plan.Row) plan.StageEnd {
	var last time.Time
	inputs, err := b.Stager.Stage(ctx, r.Run, r.Resources.DockerImage, func(progress string) {
		now := time.Now() //nolint:forbidigo // how often people are told
		if now.Sub(last) < progressEvery {
			return
		}
		last = now
		b.inbox.put(r.Bundle, func(n *plan.News) { n.Progress = progress })
	})
	return plan.StageEnd{Outcome: outcome(err), Inputs: inputs}
}

// submit writes what the job will read, and runs sbatch.
func (b *Bridge) submit(ctx context.Context, r plan.Row) plan.Submission {
	end := plan.Submission{Attempt: r.Attempt}
	if late := time.Since(r.Submitted); late > plan.SubmitWithin { //nolint:forbidigo // others may have kept it waiting
		end.Refused, end.Retry, end.Words = true, true, "Slurm is slow to take other submissions"
		return end
	}
	layout := b.Policy.Layout
	err := layout.Attempt(r.Bundle, r.Attempt).WriteSpec(b.Policy.Spec(r))
	if err == nil {
		err = layout.WriteMembers(string(r.Mark), []spool.Member{{Bundle: r.Bundle, Attempt: r.Attempt}})
	}
	if err != nil { // nothing was asked of Slurm yet
		end.Refused, end.Retry, end.Words = true, true, err.Error()
		return end
	}
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

func (b *Bridge) account(ctx context.Context, r plan.Row) func(*plan.News) {
	asked := time.Now() //nolint:forbidigo // when a question is asked is part of its answer
	jobs, err := b.Scheduler.Account(ctx, r.Submitted.Add(-accountSlack), []string{string(r.Mark)})
	if err != nil {
		b.Log.WarnContext(ctx, "accounting did not answer", errorAttr(err))
		return func(n *plan.News) { n.AccountFailure = err.Error() }
	}
	found := plan.Sighting{Mark: r.Mark, Asked: asked, Jobs: sbatch.Snapshot{Jobs: jobs}.ByName()[string(r.Mark)]}
	return func(n *plan.News) { n.Accounted = &found }
}

// closeWithin bounds the closing of an attempt; the row wants it again.
const closeWithin = 30 * time.Second

func (b *Bridge) close(ctx context.Context, r plan.Row) plan.Closing {
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	c := plan.Closing{Attempt: r.Attempt}
	err := b.shared()
	if err == nil {
		c.Standing, _, err = b.Policy.Layout.Attempt(r.Bundle, r.Attempt).Close(ctx, time.Now()) //nolint:forbidigo // a record's date, for people
	}
	if err != nil {
		c.Failure = err.Error()
	}
	return c
}

// shared says why the shared disk is not there: what is missing on a directory
// that nothing is mounted on is no evidence, and what is written to it is seen
// by no worker.
func (b *Bridge) shared() error {
	_, err := os.Stat(filepath.Dir(b.Policy.Layout.Members("any")))
	if err != nil {
		return fmt.Errorf("find the shared disk: %w", err)
	}
	return nil
}

// look reads an attempt's records. A record that the disk does not give out, or
// a directory that it does not, makes the look a failure, which shows no
// absence; a record that is not to be understood is as good as none.
func (b *Bridge) look(bundle string, attempt int, now time.Time) func(*plan.News) {
	a := b.Policy.Layout.Attempt(bundle, attempt)
	_, err := os.ReadDir(a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = b.shared()
	}
	if err != nil {
		return func(n *plan.News) { n.LookFailure = err.Error() }
	}
	rec := plan.Records{Attempt: attempt, Read: now, Output: tail(a.OutputPath())}
	var failure error
	rec.Started = found(a.ReadStarted, &failure)
	rec.Status = found(a.ReadStatus, &failure)
	rec.Exit = found(a.ReadExit, &failure)
	return func(n *plan.News) {
		if failure != nil {
			rec.Read, n.LookFailure = time.Time{}, failure.Error()
		}
		n.AddRecords(rec)
	}
}

// found reads a record, and notes the failure of a disk that does not say
// whether there is one.
func found[T any](read func() (T, error), failure *error) *T {
	rec, err := read()
	var disk *fs.PathError
	if errors.As(err, &disk) {
		*failure = err
	}
	if err != nil {
		return nil
	}
	return &rec
}

// tail returns the end of a file, or nothing.
func tail(path string) string {
	const kept = 2048
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err == nil && info.Size() > kept {
		if _, err := f.Seek(-kept, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, kept))
	if err != nil {
		return ""
	}
	return string(text)
}

func (b *Bridge) collect(ctx context.Context, r plan.Row) plan.Outcome {
	err := b.Collector.Collect(ctx, r.Run, b.Policy.Layout.RunDir(r.Bundle, r.Attempt))
	o := outcome(err)
	var answer *codalab.Error
	if errors.As(err, &answer) {
		o.Gone = answer.Status == 404
	}
	return o
}

// release removes all that the shared disk holds of a bundle, but not what
// the cache holds of its inputs.
func (b *Bridge) release(r plan.Row) error {
	if err := b.shared(); err != nil {
		return err
	}
	layout := b.Policy.Layout
	errs := []error{filetree.Remove(layout.RunsDir(r.Bundle)), filetree.Remove(layout.BundleDir(r.Bundle))}
	for _, m := range b.Policy.Marks(r) {
		if err := os.Remove(layout.Members(string(m))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove files of bundle %s: %w", r.Bundle, err)
	}
	return nil
}
