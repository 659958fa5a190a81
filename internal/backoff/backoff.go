// Package backoff decides how long a caller pauses after failures.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// After returns the pause after n failures in a row: first, doubled with each further failure, and
// at most longest. The same arguments give the same pause.
func After(n int, first, longest time.Duration) time.Duration {
	d := first
	for ; n > 1 && d < longest; n-- {
		d *= 2
	}
	return min(d, longest)
}

// Spread lengthens d by up to a quarter, so that callers that failed in the same moment come back in
// different ones. random returns a number in [0, 1); nil means math/rand/v2.Float64.
func Spread(d time.Duration, random func() float64) time.Duration {
	if random == nil {
		random = rand.Float64
	}
	return d + time.Duration(random()*float64(d)/4)
}

// Wait waits for the pause of After, spread by chance. It returns ctx.Err() if ctx ends first.
func Wait(ctx context.Context, n int, first, longest time.Duration) error {
	return pause.For(ctx, Spread(After(n, first, longest), nil))
}
