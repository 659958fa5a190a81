package plan

import (
	"fmt"
	"time"
)

// idleGPUs returns a sentence about GPUs that the command has not used for minutes; none if it uses all. A GPU that is
// known to be idle is worth a word while it can still be given back.
func (r Row) idleGPUs() []string {
	if r.Status == nil || r.Exit != nil || r.Status.Usage.GPU.Idle == 0 {
		return nil
	}
	g := r.Status.Usage.GPU
	which := fmt.Sprintf("%d GPUs", g.Idle)
	switch {
	case int64(g.Idle) < r.Resources.GPUs:
		which = fmt.Sprintf("%d of its %d GPUs", g.Idle, r.Resources.GPUs)
	case g.Idle == 1:
		which = "1 GPU"
	}
	return []string{fmt.Sprintf("0 %% of %s used for %s.", which, spellLong(r.Status.At.Sub(g.IdleSince)))}
}

// spellLong returns a duration of minutes, in whole minutes below two hours, and in whole hours above: each change of a
// run's status is stored.
func spellLong(d time.Duration) string {
	if d >= 2*time.Hour {
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d minutes", d/time.Minute)
}
