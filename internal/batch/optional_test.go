package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/batch"
)

func (r *recorder) callOf(ctx context.Context, _ string, items []int) ([]int, error) {
	return r.call(ctx, items)
}

// Items of several keys come before and after the server's refusal, and while the call is under way that it refuses.
func TestServerWithoutCallsIsAskedOnceHoweverManyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{underLimit: 100, failure: fmt.Errorf("404: %w", errors.ErrUnsupported)}
		single := 0
		var mu sync.Mutex
		o := batch.NewOptional(time.Now, 2, r.fits, batch.Requests[int, int]{Several: r.callOf, Single: func(_ context.Context, _ string, item int) (int, error) {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			single++
			return -item, nil
		}})
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				time.Sleep(time.Duration(i/20) * 400 * time.Millisecond)
				if got, err := o.Do(t.Context(), fmt.Sprint(i%3), i); !errors.Is(err, errors.ErrUnsupported) && (err != nil || got != -i) {
					t.Errorf("%d: %d, %v", i, got, err)
				}
			})
		}
		all.Wait()
		if len(r.calls) != 1 || single == 0 || single > 59 || !o.Alone() {
			t.Errorf("%d calls and %d single ones", len(r.calls), single)
		}
	})
}

func TestCallThatAsksTheServerLetsOthersGiveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{underLimit: 100}
		o := batch.NewOptional(time.Now, 2, r.fits, batch.Requests[int, int]{Several: r.callOf})
		var first sync.WaitGroup
		first.Go(func() { _, _ = o.Do(t.Context(), "a", 1) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, err := o.Do(ctx, "b", 2); !errors.Is(err, context.DeadlineExceeded) || len(r.calls) != 1 {
			t.Errorf("%d calls: %v", len(r.calls), err)
		}
		first.Wait()
	})
}

func TestServerWithoutCallsIsNotAskedForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{underLimit: 100, failure: fmt.Errorf("405: %w", errors.ErrUnsupported)}
		o := batch.NewOptional(time.Now, 1, r.fits, batch.Requests[int, int]{Several: r.callOf})
		again := func(key string, unsupported bool, calls int) {
			t.Helper()
			if _, err := o.Do(t.Context(), key, 1); errors.Is(err, errors.ErrUnsupported) != unsupported || o.Alone() != unsupported {
				t.Errorf("%v, alone %t", err, o.Alone())
			}
			if len(r.calls) != calls {
				t.Errorf("%d calls, want %d", len(r.calls), calls)
			}
		}
		again("a", true, 1)
		again("a", true, 1)
		again("b", true, 1)
		time.Sleep(10*time.Minute - time.Second)
		again("a", true, 1)
		r.failure = nil
		time.Sleep(time.Second)
		again("a", false, 2)
		r.failure = errors.New("reset")
		again("b", false, 3) // another failure says nothing of the server
		r.failure = nil
		again("b", false, 4)
	})
}

func TestKeysHaveCallsOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{underLimit: 100}
		var mu sync.Mutex
		keys := map[string][]int{}
		o := batch.NewOptional(time.Now, 1, r.fits, batch.Requests[int, int]{Several: func(ctx context.Context, key string, items []int) ([]int, error) {
			mu.Lock()
			keys[key] = append(keys[key], items...)
			mu.Unlock()
			return r.call(ctx, items)
		}})
		if _, err := o.Do(t.Context(), "first", 6); err != nil { // the server has such calls
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				if got, err := o.Do(t.Context(), fmt.Sprint(i%2), i); err != nil || got != -i {
					t.Errorf("%d: %d, %v", i, got, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if !slices.Equal(keys["0"], []int{0, 2, 4}) || !slices.Equal(keys["1"], []int{1, 3, 5}) || r.most != 2 {
			t.Errorf("%v, %d at once", keys, r.most)
		}
	})
}
