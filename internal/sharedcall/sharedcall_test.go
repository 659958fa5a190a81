package sharedcall_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/sharedcall"
)

func TestCallersOfOneKeyShareACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g sharedcall.Group[int]
		var calls atomic.Int64
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				v, err := g.Do(t.Context(), "a", func(ctx context.Context) (int, error) {
					calls.Add(1)
					return 7, pause.For(ctx, time.Second)
				})
				if v != 7 || err != nil {
					t.Errorf("Do: %d, %v", v, err)
				}
			})
		}
		callers.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls for 5 callers", n)
		}
		if v, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { return 8, nil }); v != 8 || err != nil {
			t.Errorf("after the end, Do: %d, %v; want a new call", v, err)
		}
	})
}

func TestCallerThatLeavesDoesNotEndTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g sharedcall.Group[int]
		slow := func(ctx context.Context) (int, error) { return 7, pause.For(ctx, time.Minute) }
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := g.Do(impatient, "a", slow); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the impatient caller: %v", err)
			}
		})
		synctest.Wait()
		callers.Go(func() {
			if v, err := g.Do(t.Context(), "a", slow); v != 7 || err != nil {
				t.Errorf("the patient caller: %d, %v", v, err)
			}
		})
		callers.Wait()
	})
}

func TestLastCallerToLeaveCancelsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g sharedcall.Group[int]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		cancelled, release := make(chan struct{}), make(chan struct{})
		_, err := g.Do(ctx, "a", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			close(cancelled)
			<-release
			return 0, ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do: %v", err)
		}
		<-cancelled
		if v, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { return 8, nil }); v != 8 || err != nil {
			t.Errorf("beside the cancelled call, Do: %d, %v; want a new call", v, err)
		}
		close(release)
	})
}
