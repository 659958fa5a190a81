package bridge

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Ten thousand members of waiting packs are killed at once. All end as killed, each pack is cancelled once, and a member costs no more than one of
// a thousand.
//
//nolint:paralleltest // it counts allocations of the whole process
func TestTenThousandMembersAreKilledAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: it takes many seconds")
	}
	few, many := killAll(t, 1_000), killAll(t, 10_000)
	t.Logf("%d bytes are allocated for each of 1,000, and %d for each of 10,000", few, many)
	if many > few*3/2 {
		t.Errorf("a killed member of 10,000 costs %d bytes, and one of 1,000 %d", many, few)
	}
}

// killAll kills so many members, and returns the number of bytes that were allocated for each.
func killAll(t *testing.T, n int) uint64 {
	t.Helper()
	const inOne = 500
	p := newPacks(t, several("1", 0, n)...)
	queue := p.policy.Queues["cpu"]
	queue.PackRuns = inOne
	p.policy.Queues["cpu"], p.policy.OrphanGrace = queue, 5*time.Second
	p.start()
	p.pass(5 * time.Second)
	if sizes := p.sizes(); len(sizes) != n/inOne {
		t.Fatalf("%d submissions: %v", len(sizes), sizes)
	}
	before := allocated()
	for i := range n {
		p.kill(i)
	}
	p.pass(5 * time.Second)
	bytes := allocated() - before
	p.want("phases", slices.Compact(p.phases(0, n)), []plan.Phase{plan.Finalizing})
	p.pass(2 * p.policy.OrphanGrace)
	cancelled := map[sbatch.JobID]bool{}
	for _, id := range p.cancelled {
		cancelled[id] = true
	}
	p.want("packs cancelled", len(cancelled), n/inOne)
	return bytes / uint64(n)
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
