package sbatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/sharedcall"
)

// Scheduler is Slurm. *Client and *Observer implement it, and document the methods.
type Scheduler interface {
	Submitter
	Observe(ctx context.Context, notBefore time.Time) (Snapshot, error)
	QueryAccounting(ctx context.Context, since time.Time, which Which) ([]Job, error)
	Cancel(ctx context.Context, name string, ids ...JobID) error
	Partitions(ctx context.Context) ([]Partition, error)
}

// Submitter submits jobs. *Client documents the methods.
type Submitter interface {
	Submit(ctx context.Context, r Request) (JobID, error)
	Try(ctx context.Context, r Request) error
}

// longestObservePause bounds the pause between two requests to a controller that does not answer.
const longestObservePause = time.Minute

// Observer is the only place in which a bridge asks Slurm's controller for jobs. The bridge's rows, the
// jobs that convert images, the sweep and the cache's trimmer all need the list of jobs. Each squeue lists
// all of them, so one answer serves all: the Observer runs squeue at most once per Interval, only while a
// caller waits, and gives all waiting callers the same answer.
//
// After the first failure the controller counts as unreachable, and the Observer asks it less often:
//
//   - The next squeue comes after Interval. Each further failure doubles the pause, up to
//     longestObservePause. The Observer adds a random part of up to a quarter, so that the bridges of a
//     site do not all come back in the same second.
//   - Until an answer comes, squeue is the only request. Submit, Try and Cancel send no request and fail
//     at once. Submit and Try return a refusal that may be tried again, so their caller knows that no
//     job was made.
//
// The Observer does not hold sacct and sinfo back. sacct asks the accounting database and not the
// controller; sinfo is run every two minutes.
//
// The exported fields are set before the first use and do not change afterwards. An Observer is safe for
// concurrent use.
type Observer struct {
	Scheduler

	// Interval is the shortest time from one squeue to the next.
	Interval time.Duration
	// Now reads the clock, by which snapshots have their Asked.
	Now func() time.Time
	// Random returns a number in [0, 1); nil means math/rand/v2.Float64.
	Random func() float64

	calls sharedcall.Group[Snapshot]

	mu          sync.Mutex
	next        time.Time // the earliest time of the next request
	failures    int       // in a row
	unreachable *UnreachableError
}

// Observe returns a snapshot that was requested at notBefore or later, with its jobs in the order of their
// ids. It blocks until the next squeue may run; all callers that wait get the same answer, which none of
// them may change. If the controller does not answer, the error is an *UnreachableError.
func (o *Observer) Observe(ctx context.Context, notBefore time.Time) (Snapshot, error) {
	for {
		snapshot, err := o.calls.Do(ctx, "", o.observeNext)
		if err != nil || !snapshot.Asked.Before(notBefore) {
			return snapshot, err
		}
	}
}

// observeNext runs the next squeue.
func (o *Observer) observeNext(ctx context.Context) (Snapshot, error) {
	if wait := o.Next().Sub(o.Now()); wait > 0 {
		if err := pause.For(ctx, wait); err != nil {
			return Snapshot{}, err
		}
	}
	asked := o.Now()
	o.mu.Lock()
	o.next = asked.Add(o.Interval) // counts even if all callers leave before the answer
	o.mu.Unlock()
	snapshot, err := o.Scheduler.Observe(ctx, asked)
	switch {
	case err == nil:
		o.answered()
	case ctx.Err() != nil:
		return Snapshot{}, ctx.Err()
	default:
		return Snapshot{}, o.failed(asked, err)
	}
	slices.SortStableFunc(snapshot.Jobs, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	return snapshot, nil
}

// Next returns the earliest time of the next squeue.
func (o *Observer) Next() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next
}

func (o *Observer) answered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures, o.unreachable = 0, nil
}

// failed notes that the controller did not answer.
func (o *Observer) failed(asked time.Time, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures++
	o.next = o.Now().Add(backoff.Spread(backoff.After(o.failures, o.Interval, longestObservePause), o.Random))
	since := asked
	if o.unreachable != nil {
		since = o.unreachable.Since
	}
	o.unreachable = &UnreachableError{Since: since, Next: o.next, Err: err}
	return o.unreachable
}

// Submit submits a job. While the controller is unreachable it sends no request, and returns an *Error with
// Refused and Retry set: no job was made, and a later try may succeed.
func (o *Observer) Submit(ctx context.Context, r Request) (JobID, error) {
	if outage := o.outage(); outage != nil {
		return 0, &Error{Op: "submit " + r.Name, Message: outage.Error(), Refused: true, Retry: true, Err: outage}
	}
	return o.Scheduler.Submit(ctx, r)
}

// Try asks whether Slurm would accept a job. While the controller is unreachable it sends no request, and
// returns the same error as Submit.
func (o *Observer) Try(ctx context.Context, r Request) error {
	if outage := o.outage(); outage != nil {
		return &Error{Op: "try to submit " + r.Name, Message: outage.Error(), Refused: true, Retry: true, Err: outage}
	}
	return o.Scheduler.Try(ctx, r)
}

// Cancel ends jobs. While the controller is unreachable it sends no request and returns an
// *UnreachableError.
func (o *Observer) Cancel(ctx context.Context, name string, ids ...JobID) error {
	if outage := o.outage(); outage != nil {
		return fmt.Errorf("%s: %w", cancelOp(ids), outage)
	}
	return o.Scheduler.Cancel(ctx, name, ids...)
}

func (o *Observer) outage() *UnreachableError {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unreachable
}

// UnreachableError means that Slurm's controller does not answer.
type UnreachableError struct {
	// Since is the time of the first question without an answer. Next is the earliest time of the next
	// question.
	Since, Next time.Time
	// Err is the error of the last question.
	Err error
}

// Error returns Since and the cause in one sentence.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("Slurm's controller has not answered since %s: %v", e.Since.Format(time.TimeOnly), e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Transient returns true: the same request may succeed later.
func (e *UnreachableError) Transient() bool { return true }

// Outage returns true: the site is at fault, not the request.
func (e *UnreachableError) Outage() bool { return true }
