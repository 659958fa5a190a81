package sbatch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// controller is a Slurm that counts requests, and may not answer.
type controller struct {
	sbatch.Scheduler

	mu       sync.Mutex
	asked    []time.Time // squeue
	others   int         // sbatch and scancel
	down     bool
	answerIn time.Duration
}

var errNoContact = errors.New("unable to contact slurm controller")

func (c *controller) Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error) {
	c.mu.Lock()
	c.asked = append(c.asked, now)
	down, wait := c.down, c.answerIn
	c.mu.Unlock()
	if err := pause.For(ctx, wait); err != nil {
		return sbatch.Snapshot{}, err
	}
	if down {
		return sbatch.Snapshot{}, errNoContact
	}
	return sbatch.Snapshot{Asked: now, Jobs: []sbatch.Job{{ID: 2}, {ID: 1}}}, nil
}

func (c *controller) Submit(context.Context, sbatch.Request) (sbatch.JobID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others++
	return 7, nil
}

func (c *controller) Cancel(context.Context, string, ...sbatch.JobID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others++
	return nil
}

func (c *controller) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

func (c *controller) counts() (asked []time.Time, others int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked), c.others
}

const every = 6 * time.Second

func observe(c *controller) *sbatch.Observer {
	return &sbatch.Observer{Scheduler: c, Interval: every, Now: time.Now, Random: func() float64 { return 0 }}
}

func TestEverybodyWhoNeedsASnapshotSharesOneSqueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slurm := &controller{answerIn: time.Second}
		o := observe(slurm)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var consumers sync.WaitGroup
		for i, between := range []time.Duration{every, 0, 0, 0, time.Minute, 7 * time.Minute} { // rows, conversions, trimmer, sweep
			consumers.Go(func() {
				_ = pause.For(ctx, time.Duration(i)*1700*time.Millisecond)
				for ctx.Err() == nil {
					after := time.Now()
					s, err := o.Observe(ctx, after)
					if err == nil && (s.Asked.Before(after) || !slices.IsSortedFunc(s.Jobs, func(a, b sbatch.Job) int { return int(a.ID - b.ID) })) {
						t.Errorf("a consumer that needs a snapshot asked after %s got %+v", after, s)
					}
					_ = pause.For(ctx, between)
				}
			})
		}
		consumers.Wait()
		if asked, _ := slurm.counts(); len(asked) > 101 {
			t.Errorf("squeue was run %d times in ten minutes, want at most one every %s", len(asked), every)
		}
	})
}

func TestSlurmIsNotAskedOnceNobodyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slurm := &controller{answerIn: time.Minute}
		o := observe(slurm)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := o.Observe(ctx, time.Now()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Observe: %v", err)
		}
		if err := pause.For(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if asked, _ := slurm.counts(); len(asked) != 1 {
			t.Errorf("squeue was run %d times", len(asked))
		}
		if _, err := o.Submit(t.Context(), sbatch.Request{}); err != nil {
			t.Errorf("a caller that gave up is no sign that the controller is unreachable, and Submit says %v", err)
		}
	})
}

func TestControllerThatDoesNotAnswerIsAskedLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slurm := &controller{down: true}
		o := observe(slurm)
		began := time.Now()
		var outage *sbatch.UnreachableError
		for range 8 {
			if _, err := o.Observe(t.Context(), time.Now()); !errors.As(err, &outage) || !errors.Is(err, errNoContact) {
				t.Fatalf("Observe: %v", err)
			}
			if !outage.Since.Equal(began) || !outage.Next.Equal(o.Next()) || !outage.Transient() || !outage.Outage() {
				t.Errorf("%+v; want the outage since %s, asked again at %s", outage, began, o.Next())
			}
		}
		asked, _ := slurm.counts()
		for i, seconds := range []int{6, 12, 24, 48, 60, 60, 60} {
			if got := asked[i+1].Sub(asked[i]); got.Seconds() != float64(seconds) {
				t.Errorf("pause %d is %s, want %d s", i+1, got, seconds)
			}
		}
		slurm.setDown(false)
		for range 2 {
			if _, err := o.Observe(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if asked, _ = slurm.counts(); asked[len(asked)-1].Sub(asked[len(asked)-2]) != every {
			t.Errorf("a controller that answers again is asked at %v", asked)
		}
	})
}

func TestPausesAreSpreadByChance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observe(&controller{down: true})
		o.Random = func() float64 { return .5 }
		_, err := o.Observe(t.Context(), time.Now())
		if next := time.Until(o.Next()); err == nil || next != every+every/8 {
			t.Errorf("the next squeue is in %s, %v", next, err)
		}
	})
}

func TestUnreachableControllerGetsOneProbeAtATimeAndNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slurm := &controller{down: true, answerIn: 40 * time.Second}
		o := observe(slurm)
		_, _ = o.Observe(t.Context(), time.Now())
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				_, err := o.Submit(t.Context(), sbatch.Request{Name: "cl-x"})
				var refused *sbatch.Error
				if !errors.As(err, &refused) || !refused.Refused || !refused.Retry || !refused.Transient() {
					t.Errorf("Submit: %v; want a refusal that may be tried again", err)
				}
				var outage *sbatch.UnreachableError
				if err := o.Cancel(t.Context(), "cl-x", 1); !errors.As(err, &outage) {
					t.Errorf("Cancel: %v", err)
				}
				_, _ = o.Observe(t.Context(), time.Now())
			})
		}
		callers.Wait()
		if asked, others := slurm.counts(); len(asked) != 2 || others != 0 {
			t.Errorf("squeue was run %d times, want the failure and one probe; other commands %d times", len(asked), others)
		}
		slurm.setDown(false)
		if _, err := o.Observe(t.Context(), time.Now()); err != nil {
			t.Error(err)
		}
		id, err := o.Submit(t.Context(), sbatch.Request{})
		if err := errors.Join(err, o.Cancel(t.Context(), "x", 1)); err != nil || id != 7 {
			t.Errorf("after the outage: job %d, %v", id, err)
		}
	})
}
