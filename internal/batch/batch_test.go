package batch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/batch"
)

// recorder makes calls that take a second, and answers each item with its negative.
type recorder struct {
	mu         sync.Mutex
	calls      [][]int
	now, most  int
	failure    error
	underLimit int
}

func (r *recorder) call(ctx context.Context, items []int) ([]int, error) {
	r.mu.Lock()
	r.calls = append(r.calls, slices.Clone(items))
	r.now++
	r.most = max(r.most, r.now)
	failure := r.failure
	r.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		failure = ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
	if failure != nil {
		return nil, failure
	}
	answers := make([]int, len(items))
	for i, item := range items {
		answers[i] = -item
	}
	return answers, nil
}

func (r *recorder) fits(items []int, more int) bool {
	return len(items) < r.underLimit && !slices.Contains(items, more)
}

// ask asks for items one after another, without waiting for their answers.
func ask(ctx context.Context, t *testing.T, all *sync.WaitGroup, c *batch.Calls[int, int], want error, items ...int) {
	t.Helper()
	for _, item := range items {
		all.Go(func() {
			got, err := c.Do(ctx, item)
			if !errors.Is(err, want) || err == nil && got != -item {
				t.Errorf("%d: %d, %v; want error %v", item, got, err, want)
			}
		})
		synctest.Wait()
	}
}

func TestItemsThatWaitAreOneCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{underLimit: 3}
		c := batch.New(1, r.fits, r.call)
		var all sync.WaitGroup
		ask(t.Context(), t, &all, c, nil, 1, 2, 2, 3, 4, 5)
		all.Wait()
		if want := [][]int{{1}, {2, 3, 4}, {2, 5}}; !slices.EqualFunc(r.calls, want, slices.Equal[[]int]) || r.most != 1 {
			t.Errorf("calls %v, %d at once; want %v", r.calls, r.most, want)
		}
	})
}

func TestCallsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{underLimit: 100}
		c := batch.New(2, r.fits, r.call)
		var all sync.WaitGroup
		ask(t.Context(), t, &all, c, nil, 1, 2, 3, 4, 5)
		all.Wait()
		if want := [][]int{{1}, {2}, {3, 4, 5}}; !slices.EqualFunc(r.calls, want, slices.Equal[[]int]) || r.most != 2 {
			t.Errorf("calls %v, %d at once; want %v", r.calls, r.most, want)
		}
	})
}

func TestFailureOfACallIsThatOfEachOfItsItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		r := &recorder{underLimit: 100, failure: failed}
		c := batch.New(1, r.fits, r.call)
		var all sync.WaitGroup
		ask(t.Context(), t, &all, c, failed, 1, 2, 3)
		all.Wait()
		r.failure = nil
		ask(t.Context(), t, &all, c, nil, 4)
		all.Wait()
	})
}

func TestItemWhoseCallerHasGoneIsLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{underLimit: 100}
		c := batch.New(1, r.fits, r.call)
		var all sync.WaitGroup
		ask(t.Context(), t, &all, c, nil, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ask(ctx, t, &all, c, context.Canceled, 2)
		ask(t.Context(), t, &all, c, nil, 3)
		cancel()
		all.Wait()
		if want := [][]int{{1}, {3}}; !slices.EqualFunc(r.calls, want, slices.Equal[[]int]) {
			t.Errorf("calls %v, want %v", r.calls, want)
		}
	})
}

// Whichever of a call's callers goes, the others get their answers.
func TestCallerThatGoesDuringItsCallLeavesItToTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for gone := range 4 {
			r := &recorder{underLimit: 100}
			c := batch.New(1, r.fits, r.call)
			var all sync.WaitGroup
			ask(t.Context(), t, &all, c, nil, 0)
			cancels := make([]context.CancelFunc, 4)
			for i := range cancels {
				ctx, cancel := context.WithCancel(t.Context())
				var want error
				if i == gone {
					want = context.Canceled
				}
				cancels[i] = cancel
				ask(ctx, t, &all, c, want, i+1)
			}
			time.Sleep(1500 * time.Millisecond)
			cancels[gone]()
			all.Wait()
			if want := [][]int{{0}, {1, 2, 3, 4}}; !slices.EqualFunc(r.calls, want, slices.Equal[[]int]) {
				t.Errorf("calls %v, want %v", r.calls, want)
			}
			for _, cancel := range cancels {
				cancel()
			}
		}
	})
}

func TestLastCallerThatGoesCancelsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{underLimit: 100}
		c := batch.New(1, r.fits, r.call)
		var all sync.WaitGroup
		began := time.Now()
		first, cancelFirst := context.WithCancel(t.Context())
		ask(first, t, &all, c, context.Canceled, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ask(ctx, t, &all, c, context.Canceled, 2, 3)
		cancelFirst() // its call is cancelled, and the next one begins
		synctest.Wait()
		ask(t.Context(), t, &all, c, nil, 4)
		cancel()
		all.Wait()
		if want := [][]int{{1}, {2, 3}, {4}}; !slices.EqualFunc(r.calls, want, slices.Equal[[]int]) || r.most != 1 {
			t.Errorf("calls %v, %d at once; want %v", r.calls, r.most, want)
		}
		if took := time.Since(began); took != time.Second { // of the last call alone
			t.Errorf("they took %v", took)
		}
	})
}
