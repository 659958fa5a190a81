package hub

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

// away returns the ids of the queues that are away, each with the time of its last check-in.
func (h *Hub) awayNow(now time.Time) (ids []string) {
	for _, c := range h.Capacities(now) {
		if !c.AwaySince.IsZero() {
			ids = append(ids, fmt.Sprintf("%s since %s", c.Worker.ID, c.AwaySince.Sub(start)))
		}
	}
	slices.Sort(ids)
	return ids
}

func TestQueueThatIsAwayIsRememberedWithItsLastCheckIn(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	queue := func(id, bridge string, after time.Duration, change ...func(*codalab.CheckIn)) {
		t.Helper()
		in := codalab.CheckIn{Tag: id, Instance: bridge, CPUs: 4, ExitAfterNumRuns: 1, Dependencies: [][2]string{{"0x1", ""}}, Queue: &codalab.QueueInfo{Nodes: 1}}
		for _, do := range change {
			do(&in)
		}
		c, _, err := h.BeginCheckIn(plan.Worker{User: "0xu", ID: id}, Arrival{CheckIn: in}, start.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		c.End()
	}
	at := func(after time.Duration, want ...string) {
		t.Helper()
		if got := h.awayNow(start.Add(after)); !slices.Equal(got, want) {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	queue("gpu", "1", time.Second)
	queue("cpu", "1", 2*time.Second)
	queue("ends", "2", 0, func(in *codalab.CheckIn) { in.IsTerminating = true })
	queue("worker", "", 0, func(in *codalab.CheckIn) { in.Queue = nil })
	at(time.Minute)
	at(2*time.Minute, "cpu since 2s", "gpu since 1s")
	h.Tick(start.Add(2 * time.Minute)) // forgets the workers
	at(2*time.Minute, "cpu since 2s", "gpu since 1s")
	queue("cpu", "1", time.Hour)
	at(time.Hour) // the bridge is back, and no longer has the other queue
	h.Tick(start.Add(2 * time.Hour))
	at(2*time.Hour, "cpu since 1h0m0s", "gpu since 1s")
	at(RememberQueues+time.Hour, "cpu since 1h0m0s")
	for _, c := range h.Capacities(start.Add(2 * time.Hour)) {
		if len(c.Dependencies) > 0 {
			t.Errorf("the server keeps the dependencies of a worker that has gone: %+v", c)
		}
	}
	h.Tick(start.Add(RememberQueues + 2*time.Hour))
	at(0)
}

// A user may invent any number of queues.
func TestQueuesOfAUserThatAreAwayAreBounded(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	for n := range 2 * mostAway {
		h.Restore(LastSeen{Worker: plan.Worker{User: "0xu", ID: fmt.Sprint(n)}, CheckIn: codalab.CheckIn{Instance: fmt.Sprint(n), Queue: &codalab.QueueInfo{}}, At: start.Add(time.Duration(n))})
	}
	h.Restore(LastSeen{Worker: plan.Worker{User: "0xv", ID: "other"}, CheckIn: codalab.CheckIn{Queue: &codalab.QueueInfo{}}, At: start.Add(-1)})
	if got := h.awayNow(start.Add(time.Hour)); len(got) != mostAway+1 || !slices.Contains(got, "other since -1ns") || slices.Contains(got, "0 since 0s") {
		t.Errorf("%d: %q", len(got), got)
	}
}

// What a queue tells of its load changes all the time, and gives no run another chance.
func TestLoadOfAQueueIsNoChangeOfItsCapacity(t *testing.T) {
	t.Parallel()
	in := func(q codalab.QueueInfo) codalab.CheckIn { return codalab.CheckIn{Queue: &q} }
	if !sameCapacity(in(codalab.QueueInfo{Running: 1}), in(codalab.QueueInfo{Running: 2, GPUTypes: map[string]int64{"a100": 1}})) {
		t.Error("another load is another capacity")
	}
	if sameCapacity(in(codalab.QueueInfo{MaxSeconds: 1}), in(codalab.QueueInfo{MaxSeconds: 2})) {
		t.Error("another time limit is no other capacity")
	}
}
