package sim

import (
	"context"
	"slices"
)

// Shrink runs a failing seed repeatedly with fewer faults, and returns the result with the fewest faults
// that breaks the same promise. When ctx ends it returns the best result so far.
func Shrink(ctx context.Context, failed Result, o Options) Result {
	best := failed
	for size := (len(best.Faults) + 1) / 2; size > 0; {
		smaller := false
		for at := 0; at < len(best.Faults) && ctx.Err() == nil; {
			o.Only = slices.Delete(slices.Clone(best.Faults), at, min(at+size, len(best.Faults)))
			r := Run(ctx, failed.Seed, o)
			if len(r.Violations) > 0 && r.Violations[0].Broken == failed.Violations[0].Broken && len(r.Faults) < len(best.Faults) {
				best, smaller = r, true
				continue
			}
			at += size
		}
		if size == 1 && !smaller || ctx.Err() != nil {
			break
		}
		size = max(1, size/2)
	}
	return best
}
