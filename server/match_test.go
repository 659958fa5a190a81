package server

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	worker := func(user, id, tag string, exclusive bool, cpus, gpus int64) *offer {
		r := codalab.Resources{CPUs: cpus, GPUs: gpus, Memory: 8 << 30, Disk: 1 << 40}
		serves := clientele{everybody: user == store.RootID}
		return &offer{key: store.Worker{User: user, ID: id}, serves: serves, tag: tag, exclusive: exclusive, total: r, free: r, runsLeft: 9}
	}
	busy := worker("me", "busy", "busy", true, 4, 0)
	busy.free.CPUs = 0
	spent := worker("me", "spent", "spent", true, 4, 0)
	spent.runsLeft = 0
	full := worker("me", "full", "full", true, 0, 0)
	full.closed, full.runsLeft = true, 0
	paused := worker("me", "paused", "paused", true, 0, 0)
	paused.closed, paused.runsLeft, paused.whyClosed = true, 0, "the disk is full"
	pausedToo := worker("me", "paused too", "half", true, 4, 0)
	pausedToo.closed, pausedToo.runsLeft, pausedToo.whyClosed = true, 0, "the disk is full"
	halfBusy := worker("me", "half", "half", true, 4, 0)
	halfBusy.free.CPUs = 0
	cached := worker("me", "cached", "twins", true, 4, 0)
	cached.dependencies = map[[2]string]bool{{"0x1", ""}: true}
	nodes := worker("me", "nodes", "nodes", true, 640, 40)
	nodes.total.Memory, nodes.free.Memory = 4<<40, 4<<40
	nodes.nodes = []codalab.Resources{{CPUs: 64, Memory: 250 << 30, Disk: 1 << 40}, {CPUs: 8, GPUs: 4, Memory: 500 << 30, Disk: 1 << 40}}
	small := worker("me", "small", "mixed", true, 640, 0)
	small.nodes = []codalab.Resources{{CPUs: 64, Memory: 8 << 30, Disk: 1 << 40}}
	offers := []*offer{
		nodes, small, worker("me", "large", "mixed", true, 128, 0),
		worker("me", "cpu", "cpu", true, 4, 0), worker("me", "open", "open", false, 8, 0), worker("me", "gpu", "gpu", true, 4, 2),
		worker("0", "shared", "shared", true, 64, 0), worker("you", "yours", "yours", true, 4, 0),
		busy, spent, full, paused, pausedToo, halfBusy, worker("me", "bare", "twins", true, 4, 0), cached,
	}
	for name, test := range map[string]struct {
		queue  string
		want   codalab.Resources
		worker string
		why    string
	}{
		"by tag":           {"cpu", codalab.Resources{CPUs: 1}, "cpu", ""},
		"by tag=":          {"tag=gpu", codalab.Resources{CPUs: 1, GPUs: 2}, "gpu", ""},
		"no queue":         {"", codalab.Resources{CPUs: 1}, "open", ""},
		"root's worker":    {"shared", codalab.Resources{CPUs: 64}, "shared", ""},
		"another's worker": {"yours", codalab.Resources{CPUs: 1}, "", "No worker serves queue yours (queues now served: busy, cpu, full, gpu, half, mixed, nodes, open, paused, shared, spent, twins)."},
		"too large":        {"cpu", codalab.Resources{CPUs: 5, Memory: 9 << 30}, "", "No worker of queue cpu is large enough for 5 CPUs, 0 GPUs, 9g memory. Available resources: 4 CPUs, 0 GPUs, 8g memory. Queues with larger workers: nodes."},
		"busy":             {"busy", codalab.Resources{CPUs: 1}, "", "No worker of queue busy has room now; the bundle runs when one has."},
		"no runs left":     {"spent", codalab.Resources{CPUs: 1}, "", "No worker of queue spent has room now; the bundle runs when one has."},
		"takes none now":   {"full", codalab.Resources{CPUs: 9}, "", "No worker of queue full has room now; the bundle runs when one has."},
		"says why":         {"paused", codalab.Resources{CPUs: 1}, "", "Queue paused takes no new bundles now: the disk is full."},
		"one says why":     {"half", codalab.Resources{CPUs: 1}, "", "No worker of queue half has room now; the bundle runs when one has."},
		"too large now":    {"half", codalab.Resources{CPUs: 5}, "", "Queue half takes no new bundles now: the disk is full."},
		"with its inputs":  {"twins", codalab.Resources{CPUs: 1}, "cached", ""},
		"a node is large":  {"nodes", codalab.Resources{CPUs: 64, Memory: 250 << 30}, "nodes", ""},
		"not at once":      {"nodes", codalab.Resources{CPUs: 64, GPUs: 4}, "nodes", ""}, // it refuses the run: no node has both
		"too large to be":  {"nodes", codalab.Resources{CPUs: 9999, Memory: 900 << 40}, "nodes", ""},
		"too large, disk":  {"nodes", codalab.Resources{CPUs: 99, Disk: 2 << 40}, "", "No worker of queue nodes is large enough for 99 CPUs, 0 GPUs, 0 memory, 2t disk. Available resources: 8 CPUs, 4 GPUs, 500g memory, 1t disk; 64 CPUs, 0 GPUs, 250g memory, 1t disk."},
		"another is":       {"mixed", codalab.Resources{CPUs: 99}, "large", ""},
		"too much disk":    {"cpu", codalab.Resources{CPUs: 1, Disk: 2 << 40}, "", "No worker of queue cpu is large enough for 1 CPUs, 0 GPUs, 0 memory, 2t disk. Available resources: 4 CPUs, 0 GPUs, 8g memory, 1t disk."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.want.Tag = test.queue
			places := newPlaces(held{})
			places.quotas["me"] = 1
			for _, o := range offers {
				places.add(o)
			}
			o, why := places.choose(&pending{ownerID: "me", resources: test.want, parents: map[[2]string]bool{{"0x1", ""}: true}})
			if got := ""; o != nil {
				got = o.key.ID
				if got != test.worker {
					t.Errorf("went to %s", got)
				}
			} else if test.worker != "" || why != test.why {
				t.Errorf("went nowhere: %s", why)
			}
		})
	}
}

// TestTooLargeRunIsToldWhatTheBestWorkersHave: of those that its owner may use.
func TestTooLargeRunIsToldWhatTheBestWorkersHave(t *testing.T) {
	t.Parallel()
	places := newPlaces(held{})
	worker := func(user, tag string, cpus, gpus, memory int64) {
		r := codalab.Resources{CPUs: cpus, GPUs: gpus, Memory: memory << 30, Disk: cpus}
		places.add(&offer{key: store.Worker{User: user}, tag: tag, exclusive: true, total: r, free: r, runsLeft: 9})
	}
	worker("me", "cpu", 4, 0, 8)
	worker("me", "cpu", 8, 1, 8)
	worker("me", "cpu", 4, 0, 64)
	worker("me", "cpu", 8, 0, 64)
	worker("you", "cpu", 512, 0, 512)
	worker("you", "large", 512, 0, 512)
	worker("me", "one", 128, 0, 128)
	worker("me", "two", 128, 0, 128)
	for i := range int64(1000) {
		worker("me", "many", 1+i, 0, 1000-i)
	}
	for i := range 30 {
		worker("me", "q"+strconv.Itoa(10+i), 1, 8, 1)
	}
	why := func(want codalab.Resources) string {
		want.Memory <<= 30
		_, why := places.choose(&pending{ownerID: "me", resources: want})
		return why
	}
	for want, got := range map[string]string{
		"No worker of queue cpu is large enough for 100 CPUs, 0 GPUs, 90g memory. Available resources: 8 CPUs, 1 GPUs, 8g memory; 8 CPUs, 0 GPUs, 64g memory. " +
			"Queues with larger workers: many, one, two.": why(codalab.Resources{Tag: "cpu", CPUs: 100, Memory: 90}),
		"No worker of queue cpu is large enough for 9 CPUs, 9 GPUs, 1g memory, 1 disk. " +
			"Available resources: 8 CPUs, 1 GPUs, 8g memory, 8 disk; 8 CPUs, 0 GPUs, 64g memory, 8 disk.": why(codalab.Resources{Tag: "cpu", CPUs: 9, GPUs: 9, Memory: 1, Disk: 1}),
		"No worker of queue many is large enough for 999 CPUs, 0 GPUs, 999g memory. Available resources: 1000 CPUs, 0 GPUs, 1g memory; 999 CPUs, 0 GPUs, 2g memory; " +
			"998 CPUs, 0 GPUs, 3g memory; 997 CPUs, 0 GPUs, 4g memory; 996 CPUs, 0 GPUs, 5g memory; and others.": why(codalab.Resources{Tag: "many", CPUs: 999, Memory: 999}),
		"No worker serves queue none (queues now served: cpu, many, one, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23, q24, q25, q26, and 14 more).": why(codalab.Resources{Tag: "none"}),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func order(runs map[string]*pending, h held) []string {
	var got []string
	for p := range fairOrder(runs, h) {
		got = append(got, p.uuid)
		h.add(p.ownerID, &offer{})
	}
	return got
}

func waiting(list ...*pending) map[string]*pending {
	runs := map[string]*pending{}
	for _, p := range list {
		runs[p.uuid] = p
	}
	return runs
}

func TestPrioritiesAreAmongOneOwnersRuns(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for range 20 { // maps come in any order
		got := order(waiting(
			&pending{uuid: "young and urgent", ownerID: "a", priority: 1, created: at(3)},
			&pending{uuid: "old", ownerID: "a", created: at(1)},
			&pending{uuid: "between", ownerID: "b", priority: 9, created: at(2)},
			&pending{uuid: "can wait", ownerID: "b", priority: -1, created: at(0)},
		), held{})
		want := []string{"between", "young and urgent", "can wait", "old"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	}
}

func TestOwnerWithFewerRunsOnWorkersIsNext(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	runs := waiting(&pending{uuid: "late", ownerID: "few", created: at(100)}, &pending{uuid: "later", ownerID: "few", created: at(101)})
	for i := range 5 {
		name := "many" + strconv.Itoa(i)
		runs[name] = &pending{uuid: name, ownerID: "many", created: at(int64(i))}
	}
	got := order(runs, held{"many": {all: 1}})
	if want := []string{"late", "many0", "later", "many1", "many2", "many3", "many4"}; !slices.Equal(got, want) {
		t.Errorf("order %v", got)
	}
}

// BenchmarkMatch is the decision about 10,000 staged runs and 1,000 workers with four places each.
func BenchmarkMatch(b *testing.B) {
	const workers, all = 1000, 10000
	for b.Loop() {
		b.StopTimer()
		runs := map[string]*pending{}
		for i := range all {
			id := strconv.Itoa(i)
			runs[id] = &pending{
				uuid: id, ownerID: strconv.Itoa(i % 20), resources: codalab.Resources{CPUs: 1, Memory: int64(1+i%3) << 30, Tag: "cpu"},
				created: time.Unix(int64(i), 0), parents: map[[2]string]bool{{id, ""}: true},
			}
		}
		h := held{}
		places := newPlaces(h)
		for i := range workers {
			r := codalab.Resources{CPUs: 4, Memory: 16 << 30, Disk: 1 << 40}
			places.add(&offer{key: store.Worker{User: store.RootID, ID: strconv.Itoa(i)}, serves: clientele{everybody: true}, tag: "cpu", exclusive: true, total: r, free: r, runsLeft: 99})
		}
		for i := range 20 {
			places.quotas[strconv.Itoa(i)] = all
		}
		b.StartTimer()
		assigned := 0
		for p := range fairOrder(runs, h) {
			if o, _ := places.choose(p); o != nil {
				o.deduct(p.resources)
				h.add(p.ownerID, o)
				assigned++
			}
		}
		if assigned != 4*workers {
			b.Fatalf("%d runs found a worker", assigned)
		}
	}
}

// A pilot ends with its job. A run that asks for more time than is left would not end there.
func TestRunThatAsksForMoreTimeThanAWorkerHasGoesElsewhere(t *testing.T) {
	t.Parallel()
	r := codalab.Resources{CPUs: 4, Memory: 8 << 30, Disk: 1 << 40}
	short := &offer{key: store.Worker{User: "me", ID: "a pilot"}, tag: "cpu", exclusive: true, total: r, free: r, runsLeft: 9, secondsLeft: 600}
	steady := &offer{key: store.Worker{User: "me", ID: "steady"}, tag: "cpu", exclusive: true, total: r, free: r, runsLeft: 9}
	choose := func(asks bool, seconds int64, offers ...*offer) (string, string) {
		places := newPlaces(held{})
		places.quotas["me"] = 9
		for _, o := range offers {
			places.add(o)
		}
		o, why := places.choose(&pending{ownerID: "me", asksTime: asks, resources: codalab.Resources{CPUs: 1, Tag: "cpu", Time: seconds}})
		if o == nil {
			return "", why
		}
		return o.key.ID, why
	}
	for _, test := range []struct {
		asks      bool
		seconds   int64
		offers    []*offer
		want, why string
	}{
		{true, 600, []*offer{short, steady}, "a pilot", ""},
		{true, 601, []*offer{short, steady}, "steady", ""},
		{true, 3600, []*offer{short}, "", "No worker of queue cpu runs for as long as 1h0m: they end before that."},
		{false, 1 << 30, []*offer{short}, "a pilot", ""}, // its owner's quota, which says nothing of the run
	} {
		if got, why := choose(test.asks, test.seconds, test.offers...); got != test.want || why != test.why {
			t.Errorf("asks %v, %d s: %q, %q, want %q, %q", test.asks, test.seconds, got, why, test.want, test.why)
		}
	}
}
