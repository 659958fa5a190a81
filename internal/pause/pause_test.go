package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

func TestPauseLastsAsLongAsAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := pause.For(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("the pause lasted %s, not a minute", d)
		}
	})
}

func TestEndOfTheContextEndsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if err := pause.For(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("For: %v, not the context's error", err)
		}
		if d := time.Since(begun); d != time.Second {
			t.Errorf("the pause lasted %s, not a second", d)
		}
	})
}
