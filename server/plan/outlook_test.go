package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// slurmQueue returns a queue of a bridge of root, with nodes of these sizes.
func slurmQueue(tag string, exclusive bool, maxSeconds int64, sizes ...codalab.Resources) Capacity {
	c := Capacity{
		Worker: Worker{User: root, ID: "bridge-" + tag}, Serves: Clientele{Everybody: true}, Tag: tag, Exclusive: exclusive,
		Nodes: sizes, RunsLeft: 1000, Queue: &codalab.QueueInfo{MaxSeconds: maxSeconds},
	}
	for _, size := range sizes {
		c.Total = Plus(c.Total, size)
	}
	c.Total.Disk = 1 << 50
	for i := range c.Nodes {
		c.Nodes[i].Disk = 1 << 50
	}
	c.Free = c.Total
	return c
}

func TestNewRunIsToldWhatItCanExpect(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600
	node := func(cpus, gpus int64) codalab.Resources {
		return codalab.Resources{CPUs: cpus, GPUs: gpus, Memory: 250 << 30}
	}
	elastic := slurmQueue("cloud", true, 0, node(8, 0))
	elastic.Queue.Elastic = true
	old := slurmQueue("old", true, 0, node(8, 0))
	old.Queue = nil
	full := slurmQueue("full", true, 0, node(8, 0))
	full.Closed, full.RunsLeft, full.WhyClosed = true, 0, "the site's disk is full"
	away := slurmQueue("away", true, 0, node(64, 8))
	away.AwaySince = time.Date(2026, 11, 28, 10, 2, 0, 0, time.UTC)
	busy := slurmQueue("busy", true, 0)
	busy.Queue, busy.Total = nil, node(4, 0)
	small := busy
	small.Tag, small.Free = "mine", small.Total
	theirs := slurmQueue("theirs", true, 0, node(64, 8))
	theirs.Worker.User, theirs.Serves = "you", Clientele{}
	theirsAway := away
	theirsAway.Tag, theirsAway.Worker.User, theirsAway.Serves = "elsewhere", "you", Clientele{}
	all := []Capacity{
		slurmQueue("cpu", false, 7*day, node(64, 0)), slurmQueue("gpu", true, 2*day, node(64, 4)), slurmQueue("short", true, 600, node(64, 4)),
		elastic, old, full, away, theirsAway, busy, small, theirs,
	}
	const known = "busy, cloud, cpu, full, gpu, mine, old, short"
	for name, test := range map[string]struct {
		tag     string
		request codalab.Resources
		want    Outlook
	}{
		"runs":           {"gpu", codalab.Resources{CPUs: 4, GPUs: 4}, Outlook{}},
		"runs, tag=":     {"tag=gpu", codalab.Resources{CPUs: 4, GPUs: 4}, Outlook{}},
		"no queue":       {"", codalab.Resources{CPUs: 4}, Outlook{}},
		"busy":           {"busy", codalab.Resources{CPUs: 4}, Outlook{}},
		"too many GPUs":  {"gpu", codalab.Resources{CPUs: 4, GPUs: 8, Memory: 2 << 30}, Outlook{Refusal: "Queue gpu has no node for 4 CPUs, 8 GPUs, 2g memory. The nearest request that fits: --request-cpus 4 --request-gpus 4 --request-memory 2g."}},
		"no GPUs there":  {"", codalab.Resources{CPUs: 4, GPUs: 2}, Outlook{Refusal: "The default queue has no node for 4 CPUs, 2 GPUs, 0 memory. Queues that can run it: gpu, short."}},
		"too long":       {"short", codalab.Resources{CPUs: 4, Time: 3600}, Outlook{Refusal: "Queue short runs bundles for at most 10m, and this one asks for 1h. The nearest request that fits: --request-cpus 4 --request-time 10m. Queues that can run it: busy, cloud, cpu, full, gpu, mine, old."}},
		"large and long": {"short", codalab.Resources{CPUs: 99, Time: 3600}, Outlook{Refusal: "Queue short has no node for 99 CPUs, 0 GPUs, 0 memory. The nearest request that fits: --request-cpus 64 --request-time 10m."}},
		"cloud nodes":    {"cloud", codalab.Resources{CPUs: 16}, Outlook{Warning: "Queue cloud has no node for 16 CPUs, 0 GPUs, 0 memory. The nearest request that fits: --request-cpus 8. Queues that can run it: cpu, gpu, short."}},
		"older bridge":   {"old", codalab.Resources{CPUs: 16}, Outlook{Warning: "Queue old has no node for 16 CPUs, 0 GPUs, 0 memory. The nearest request that fits: --request-cpus 8. Queues that can run it: cpu, gpu, short."}},
		"own worker":     {"mine", codalab.Resources{CPUs: 5}, Outlook{Warning: "No worker of queue mine is large enough for 5 CPUs, 0 GPUs, 0 memory. Available resources: 4 CPUs, 0 GPUs, 250g memory. Queues with larger workers: cloud, cpu, full, gpu, old, short."}},
		"closed":         {"full", codalab.Resources{CPUs: 4}, Outlook{Warning: "Queue full takes no new bundles now: the site's disk is full."}},
		"away":           {"away", codalab.Resources{CPUs: 4}, Outlook{Warning: "Queue away is away since 2026-11-28 10:02 UTC, and the bundle waits for it (queues now served: " + known + ")."}},
		"mistyped":       {"gpus", codalab.Resources{CPUs: 4}, Outlook{Warning: "No worker serves queue gpus (queues now served: " + known + "). Did you mean gpu?"}},
		"others' queue":  {"theirs", codalab.Resources{CPUs: 4}, Outlook{Warning: "No worker serves queue theirs (queues now served: " + known + ")."}},
		"others', away":  {"elsewhere", codalab.Resources{CPUs: 4}, Outlook{Warning: "No worker serves queue elsewhere (queues now served: " + known + ")."}},
		"site's limit":   {"gpu", codalab.Resources{CPUs: 4, Memory: 1 << 50}, Outlook{Warning: "The run fails unless that changes: Requested more memory (1024t) than maximum limit (512t) by 512t."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.request.Tag = test.tag
			run := &Waiting{OwnerID: "me", Resources: test.request, AsksTime: test.request.Time > 0}
			if got := (Site{MaxMemory: 1 << 49}).Outlook(run, all, Quota{Time: 1 << 40, Disk: 1 << 50}); got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// A server without workers may be one whose workers start when there is something to run.
func TestNoWorkersAtAllAreNoReasonForAWarning(t *testing.T) {
	t.Parallel()
	run := &Waiting{OwnerID: "me", Resources: codalab.Resources{CPUs: 1}}
	if got := (Site{}).Outlook(run, nil, Quota{}); got != (Outlook{}) {
		t.Errorf("%+v", got)
	}
	run.Resources.Tag = "gpu"
	if got := (Site{}).Outlook(run, nil, Quota{}); got.Warning != "No worker serves queue gpu (queues now served: none)." {
		t.Errorf("%+v", got)
	}
}

// TestRunIsRefusedIfAndOnlyIfItsQueueWouldRefuseIt compares the outlook of random runs with what Match does with them: it
// gives a run that no queue of its name will ever take to one of them, which refuses it.
func TestRunIsRefusedIfAndOnlyIfItsQueueWouldRefuseIt(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(n int64) int64 { return random.Int64N(n) }
	refused, warned := 0, 0
	for range 20_000 {
		var all []Capacity
		for n := range pick(4) {
			tag := fmt.Sprint("q", pick(2))
			size := codalab.Resources{CPUs: 1 + pick(4), GPUs: pick(3), Memory: pick(4) << 30}
			c := slurmQueue(tag, pick(2) == 0, pick(3)*100, size, codalab.Resources{CPUs: 1 + pick(4), GPUs: pick(3), Memory: pick(4) << 30})
			c.Worker.ID = fmt.Sprint(n)
			switch pick(6) {
			case 0:
				c.Queue, c.Nodes = nil, nil // a worker of one machine
			case 1:
				c.Queue.Elastic = true
			case 2:
				c.Queue = nil
			case 3:
				c.Closed, c.RunsLeft = true, 0
			}
			all = append(all, c)
		}
		r := codalab.Resources{CPUs: 1 + pick(5), GPUs: pick(4), Memory: 8<<20 + pick(4)<<30, Time: pick(3) * 100, Tag: []string{"", "q0", "q1"}[pick(3)]}
		run := &Waiting{UUID: "0x1", OwnerID: "me", Resources: r, AsksTime: r.Time > 0}
		owner := Quota{Time: 1 << 40, Disk: 1 << 50, ParallelRuns: 9}
		d := Match(Site{}, map[string]*Waiting{"0x1": run}, all, nil, map[string]Quota{"me": owner})
		to, given := d.Workers["0x1"]
		fails, sure := false, true
		for _, c := range all {
			if given && c.Worker == to {
				fails = !c.largeEnough(run)
			}
		}
		for _, c := range newPlaces(all, nil, nil).serving(run, r.Tag) {
			if len(c.Nodes) > 0 && (c.Queue == nil || c.Queue.Elastic) && c.allowsTime(r) {
				sure = false
			}
		}
		got := Site{}.Outlook(run, all, owner)
		if got.Refusal != "" != (fails && sure) || given && !fails && got != (Outlook{}) {
			t.Fatalf("%+v of %+v\n%+v\nmatched with %v, which refuses it: %t", got, r, all, to, fails)
		}
		if got.Refusal != "" {
			refused++
		}
		if got.Warning != "" {
			warned++
		}
	}
	if refused < 1000 || warned < 1000 {
		t.Errorf("%d refused, %d warned: the runs show nothing", refused, warned)
	}
}
