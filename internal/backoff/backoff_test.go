package backoff_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
)

func TestPauseDoublesUpToTheLongest(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{
		-1: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second,
		6: 32 * time.Second, 7: time.Minute, 8: time.Minute, math.MaxInt: time.Minute,
	} {
		if got := backoff.After(n, time.Second, time.Minute); got != want {
			t.Errorf("%s after %d failures, not %s", got, n, want)
		}
	}
	if got := backoff.After(1, time.Hour, time.Minute); got != time.Minute {
		t.Errorf("%s, which is longer than the longest pause", got)
	}
}

func TestPauseIsLengthenedByUpToAQuarter(t *testing.T) {
	t.Parallel()
	for random, want := range map[float64]time.Duration{0: 8 * time.Second, .5: 9 * time.Second} {
		if got := backoff.Spread(8*time.Second, func() float64 { return random }); got != want {
			t.Errorf("%s for %v, not %s", got, random, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		differ := false
		var last time.Duration
		for range 20 {
			begun := time.Now()
			if err := backoff.Wait(t.Context(), 3, time.Second, time.Minute); err != nil {
				t.Fatal(err)
			}
			waited := time.Since(begun)
			if waited < 4*time.Second || waited >= 5*time.Second {
				t.Fatalf("waited for %s", waited)
			}
			differ = differ || last != 0 && waited != last
			last = waited
		}
		if !differ {
			t.Error("twenty pauses are equal")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := backoff.Wait(ctx, 3, time.Second, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v, not the context's error", err)
		}
	})
}
