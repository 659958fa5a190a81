package bridge

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// The use of Slurm's limits is asked for soon after an array was refused for one, as after a single job.
func TestArrayRefusedForALimitMakesItsUseAskedFor(t *testing.T) {
	t.Parallel()
	for n, words := range map[int]string{1: "Job violates accounting/QOS policy (QOSMaxSubmitJobPerUserLimit)", 4: "QOSMaxSubmitJobPerUserLimit", 5: "Slurm backup controller in standby mode"} {
		a := newArrays(t, several("1", 0, n)...)
		a.answer = func(int) plan.SbatchAnswer { return plan.SbatchAnswer{Refused: true, Retry: true, Words: words} }
		a.pass(0)
		a.want("wanted after "+words, a.b.limitsWanted.Load(), n < 5)
	}
}
