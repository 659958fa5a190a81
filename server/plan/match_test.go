package plan

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// root is the user of the site's workers.
const root = "0"

func TestChoose(t *testing.T) {
	t.Parallel()
	worker := func(user, id, tag string, exclusive bool, cpus, gpus int64) Capacity {
		r := codalab.Resources{CPUs: cpus, GPUs: gpus, Memory: 8 << 30, Disk: 1 << 40}
		serves := Clientele{Everybody: user == root}
		return Capacity{Worker: Worker{User: user, ID: id}, Serves: serves, Tag: tag, Exclusive: exclusive, Total: r, Free: r, RunsLeft: 9}
	}
	busy := worker("me", "busy", "busy", true, 4, 0)
	busy.Free.CPUs = 0
	spent := worker("me", "spent", "spent", true, 4, 0)
	spent.RunsLeft = 0
	full := worker("me", "full", "full", true, 0, 0)
	full.Closed, full.RunsLeft = true, 0
	paused := worker("me", "paused", "paused", true, 0, 0)
	paused.Closed, paused.RunsLeft, paused.WhyClosed = true, 0, "the disk is full"
	pausedToo := worker("me", "paused too", "half", true, 4, 0)
	pausedToo.Closed, pausedToo.RunsLeft, pausedToo.WhyClosed = true, 0, "the disk is full"
	managed := worker("me", "manager", "managed", true, 4, 0)
	managed.Closed, managed.RunsLeft, managed.WhyClosed = true, 0, "a worker does not start"
	halfBusy := worker("me", "half", "half", true, 4, 0)
	halfBusy.Free.CPUs = 0
	cached := worker("me", "cached", "twins", true, 4, 0)
	cached.Dependencies = map[[2]string]bool{{"0x1", ""}: true}
	nodes := worker("me", "nodes", "nodes", true, 640, 40)
	nodes.Total.Memory, nodes.Free.Memory = 4<<40, 4<<40
	nodes.Nodes = []codalab.Resources{{CPUs: 64, Memory: 250 << 30, Disk: 1 << 40}, {CPUs: 8, GPUs: 4, Memory: 500 << 30, Disk: 1 << 40}}
	small := worker("me", "small", "mixed", true, 640, 0)
	small.Nodes = []codalab.Resources{{CPUs: 64, Memory: 8 << 30, Disk: 1 << 40}}
	capacities := []Capacity{
		nodes, small, worker("me", "large", "mixed", true, 128, 0),
		worker("me", "cpu", "cpu", true, 4, 0), worker("me", "open", "open", false, 8, 0), worker("me", "gpu", "gpu", true, 4, 2),
		worker("0", "shared", "shared", true, 64, 0), worker("you", "yours", "yours", true, 4, 0),
		busy, spent, full, paused, pausedToo, halfBusy, worker("me", "bare", "twins", true, 4, 0), cached, managed,
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
		"another's worker": {"yours", codalab.Resources{CPUs: 1}, "", "No worker serves queue yours (queues now served: busy, cpu, full, gpu, half, managed, mixed, nodes, open, paused, shared, spent, twins)."},
		"too large":        {"cpu", codalab.Resources{CPUs: 5, Memory: 9 << 30}, "", "No worker of queue cpu is large enough for 5 CPUs, 0 GPUs, 9g memory. Available resources: 4 CPUs, 0 GPUs, 8g memory. Queues with larger workers: nodes."},
		"busy":             {"busy", codalab.Resources{CPUs: 1}, "", "No worker of queue busy has room now; the bundle runs when one has."},
		"no runs left":     {"spent", codalab.Resources{CPUs: 1}, "", "No worker of queue spent has room now; the bundle runs when one has."},
		"takes none now":   {"full", codalab.Resources{CPUs: 9}, "", "No worker of queue full has room now; the bundle runs when one has."},
		"says why":         {"paused", codalab.Resources{CPUs: 1}, "", "Queue paused takes no new bundles now: the disk is full."},
		"one says why":     {"half", codalab.Resources{CPUs: 1}, "", "No worker of queue half has room now; the bundle runs when one has."},
		"too large now":    {"paused", codalab.Resources{CPUs: 5}, "", "Queue paused takes no new bundles now: the disk is full."},
		"manager waits":    {"managed", codalab.Resources{CPUs: 4}, "", "Queue managed takes no new bundles now: a worker does not start."},
		"manager's worker": {"managed", codalab.Resources{CPUs: 5}, "", "No worker of queue managed is large enough for 5 CPUs, 0 GPUs, 0 memory. Available resources: 4 CPUs, 0 GPUs, 8g memory. Queues with larger workers: mixed, nodes, open, shared."},
		"with its inputs":  {"twins", codalab.Resources{CPUs: 1}, "cached", ""},
		"a node is large":  {"nodes", codalab.Resources{CPUs: 64, Memory: 250 << 30}, "nodes", ""},
		"not at once":      {"nodes", codalab.Resources{CPUs: 64, GPUs: 4}, "nodes", ""}, // it refuses the run: no node has both
		"too large to be":  {"nodes", codalab.Resources{CPUs: 9999, Memory: 900 << 40}, "nodes", ""},
		"too large, disk":  {"nodes", codalab.Resources{CPUs: 99, Disk: 2 << 40}, "", "No worker of queue nodes is large enough for 99 CPUs, 0 GPUs, 0 memory, 2t disk. Available resources: 8 CPUs, 4 GPUs, 500g memory, 1t disk; 64 CPUs, 0 GPUs, 250g memory, 1t disk."},
		"another is":       {"mixed", codalab.Resources{CPUs: 99}, "large", ""},
		"too much disk":    {"cpu", codalab.Resources{CPUs: 1, Disk: 2 << 40}, "", "No worker of queue cpu is large enough for 1 CPU, 0 GPUs, 0 memory, 2t disk. Available resources: 4 CPUs, 0 GPUs, 8g memory, 1t disk."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.want.Tag = test.queue
			places := newPlaces(capacities, nil, map[string]Quota{"me": {ParallelRuns: 1}})
			c, why := places.choose(&Waiting{OwnerID: "me", Resources: test.want, Parents: map[[2]string]bool{{"0x1", ""}: true}})
			if got := ""; c != nil {
				got = c.Worker.ID
				if got != test.worker {
					t.Errorf("went to %s", got)
				}
			} else if test.worker != "" || why != test.why {
				t.Errorf("went nowhere: %s", why)
			}
		})
	}
}

// TestRunWithoutAQueueIsToldWhichOneIsClosed: the reason's words are about a queue, such as "its operators have drained it".
func TestRunWithoutAQueueIsToldWhichOneIsClosed(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]string{
		"cpu": "Queue cpu takes no new bundles now: its operators have drained it.",
		"":    "The workers take no new bundles now: its operators have drained it.",
	} {
		c := Capacity{Worker: Worker{User: "me", ID: "w"}, Tag: tag, Closed: true, WhyClosed: "its operators have drained it"}
		_, why := newPlaces([]Capacity{c}, nil, map[string]Quota{"me": {ParallelRuns: 1}}).choose(&Waiting{OwnerID: "me", Resources: codalab.Resources{CPUs: 1}})
		if why != want {
			t.Errorf("worker of tag %q: %q, want %q", tag, why, want)
		}
	}
}

// TestRunWithSecretsGoesToOwnersAndTheSitesWorkers: to those that give a run its secrets.
func TestRunWithSecretsGoesToOwnersAndTheSitesWorkers(t *testing.T) {
	t.Parallel()
	const sentence = "No worker of queue q may have secrets: a run with secrets needs a worker of yours or of the site, and not CodaLab's own."
	room := codalab.Resources{CPUs: 4, Memory: 8 << 30, Disk: 1 << 40}
	for name, test := range map[string]struct {
		user   string
		serves Clientele
		gives  bool
		open   bool   // takes a run without secrets
		why    string // empty if it takes the run with secrets
	}{
		"own":                     {"me", Clientele{}, true, true, ""},
		"own, of CodaLab":         {"me", Clientele{}, false, true, sentence},
		"root's":                  {root, Clientele{Everybody: true}, true, true, ""},
		"root's, of CodaLab":      {root, Clientele{Everybody: true}, false, true, sentence},
		"worker account's":        {"site", Clientele{Owners: map[string]bool{"me": true}}, true, true, ""},
		"another user's, a group": {"you", Clientele{Permitted: map[string]bool{"0x1": true}}, true, true, sentence},
		"another user's":          {"you", Clientele{}, true, false, "No worker serves queue q (queues now served: none)."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker := Capacity{Worker: Worker{User: test.user, ID: "w"}, Serves: test.serves, Secrets: test.gives, Tag: "q", Total: room, Free: room, RunsLeft: 9}
			places := newPlaces([]Capacity{worker}, nil, map[string]Quota{"me": {ParallelRuns: 9}})
			run := Waiting{UUID: "0x1", OwnerID: "me", Resources: codalab.Resources{CPUs: 1, Tag: "q"}, Secrets: true}
			c, why := places.choose(&run)
			if (c != nil) != (test.why == "") || why != test.why {
				t.Errorf("with secrets: %v, %q", c, why)
			}
			run.Secrets = false // no answer about the other run stands for this one
			if c, why := places.choose(&run); (c != nil) != test.open {
				t.Errorf("without: %v, %q", c, why)
			}
		})
	}
}

// TestTooLargeRunIsToldWhatTheBestWorkersHave: of those that its owner may use.
func TestTooLargeRunIsToldWhatTheBestWorkersHave(t *testing.T) {
	t.Parallel()
	var capacities []Capacity
	worker := func(user, tag string, cpus, gpus, memory int64) {
		r := codalab.Resources{CPUs: cpus, GPUs: gpus, Memory: memory << 30, Disk: cpus}
		capacities = append(capacities, Capacity{Worker: Worker{User: user}, Tag: tag, Exclusive: true, Total: r, Free: r, RunsLeft: 9})
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
	places := newPlaces(capacities, nil, nil)
	why := func(want codalab.Resources) string {
		want.Memory <<= 30
		_, why := places.choose(&Waiting{OwnerID: "me", Resources: want})
		return why
	}
	for want, got := range map[string]string{
		"No worker of queue cpu is large enough for 100 CPUs, 0 GPUs, 90g memory. Available resources: 8 CPUs, 1 GPU, 8g memory; 8 CPUs, 0 GPUs, 64g memory. " +
			"Queues with larger workers: many, one, two.": why(codalab.Resources{Tag: "cpu", CPUs: 100, Memory: 90}),
		"No worker of queue cpu is large enough for 9 CPUs, 9 GPUs, 1g memory, 1 disk. " +
			"Available resources: 8 CPUs, 1 GPU, 8g memory, 8 disk; 8 CPUs, 0 GPUs, 64g memory, 8 disk.": why(codalab.Resources{Tag: "cpu", CPUs: 9, GPUs: 9, Memory: 1, Disk: 1}),
		"No worker of queue many is large enough for 999 CPUs, 0 GPUs, 999g memory. Available resources: 1000 CPUs, 0 GPUs, 1g memory; 999 CPUs, 0 GPUs, 2g memory; " +
			"998 CPUs, 0 GPUs, 3g memory; 997 CPUs, 0 GPUs, 4g memory; 996 CPUs, 0 GPUs, 5g memory; and others.": why(codalab.Resources{Tag: "many", CPUs: 999, Memory: 999}),
		"No worker serves queue none (queues now served: cpu, many, one, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23, q24, q25, q26, and 14 more). Did you mean one?": why(codalab.Resources{Tag: "none"}),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func order(runs map[string]*Waiting, h RunCounts) []string {
	var got []string
	for p := range fairOrder(runs, h) {
		got = append(got, p.UUID)
		h.Add(p.OwnerID, Worker{})
	}
	return got
}

func waiting(list ...*Waiting) map[string]*Waiting {
	runs := map[string]*Waiting{}
	for _, p := range list {
		runs[p.UUID] = p
	}
	return runs
}

func TestPrioritiesAreAmongOneOwnersRuns(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for range 20 { // maps come in any order
		got := order(waiting(
			&Waiting{UUID: "young and urgent", OwnerID: "a", Priority: 1, Created: at(3)},
			&Waiting{UUID: "old", OwnerID: "a", Created: at(1)},
			&Waiting{UUID: "between", OwnerID: "b", Priority: 9, Created: at(2)},
			&Waiting{UUID: "can wait", OwnerID: "b", Priority: -1, Created: at(0)},
		), RunCounts{})
		want := []string{"between", "young and urgent", "can wait", "old"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	}
}

func TestOwnerWithFewerRunsOnWorkersIsNext(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	runs := waiting(&Waiting{UUID: "late", OwnerID: "few", Created: at(100)}, &Waiting{UUID: "later", OwnerID: "few", Created: at(101)})
	for i := range 5 {
		name := "many" + strconv.Itoa(i)
		runs[name] = &Waiting{UUID: name, OwnerID: "many", Created: at(int64(i))}
	}
	got := order(runs, RunCounts{"many": {All: 1}})
	if want := []string{"late", "many0", "later", "many1", "many2", "many3", "many4"}; !slices.Equal(got, want) {
		t.Errorf("order %v", got)
	}
}

// BenchmarkMatch is the decision about 10,000 staged runs and 1,000 workers with four places each.
func BenchmarkMatch(b *testing.B) {
	const workers, all = 1000, 10000
	for b.Loop() {
		b.StopTimer()
		runs := map[string]*Waiting{}
		for i := range all {
			id := strconv.Itoa(i)
			runs[id] = &Waiting{
				UUID: id, OwnerID: strconv.Itoa(i % 20), Resources: codalab.Resources{CPUs: 1, Memory: int64(1+i%3) << 30, Tag: "cpu"},
				Created: time.Unix(int64(i), 0), Parents: map[[2]string]bool{{id, ""}: true},
			}
		}
		var capacities []Capacity
		for i := range workers {
			r := codalab.Resources{CPUs: 4, Memory: 16 << 30, Disk: 1 << 40}
			capacities = append(capacities, Capacity{Worker: Worker{User: root, ID: strconv.Itoa(i)}, Serves: Clientele{Everybody: true}, Tag: "cpu", Exclusive: true, Total: r, Free: r, RunsLeft: 99})
		}
		quotas := map[string]Quota{}
		for i := range 20 {
			quotas[strconv.Itoa(i)] = Quota{Time: 1, Disk: 1 << 50, ParallelRuns: all}
		}
		b.StartTimer()
		if d := Match(Site{}, runs, capacities, nil, quotas); len(d.Workers) != 4*workers {
			b.Fatalf("%d runs found a worker", len(d.Workers))
		}
	}
}

// A pilot ends with its job. A run that asks for more time than is left would not end there.
func TestRunThatAsksForMoreTimeThanAWorkerHasGoesElsewhere(t *testing.T) {
	t.Parallel()
	r := codalab.Resources{CPUs: 4, Memory: 8 << 30, Disk: 1 << 40}
	short := Capacity{Worker: Worker{User: "me", ID: "a pilot"}, Tag: "cpu", Exclusive: true, Total: r, Free: r, RunsLeft: 9, SecondsLeft: 600}
	steady := Capacity{Worker: Worker{User: "me", ID: "steady"}, Tag: "cpu", Exclusive: true, Total: r, Free: r, RunsLeft: 9}
	choose := func(asks bool, seconds int64, capacities ...Capacity) (string, string) {
		places := newPlaces(capacities, nil, map[string]Quota{"me": {ParallelRuns: 9}})
		c, why := places.choose(&Waiting{OwnerID: "me", AsksTime: asks, Resources: codalab.Resources{CPUs: 1, Tag: "cpu", Time: seconds}})
		if c == nil {
			return "", why
		}
		return c.Worker.ID, why
	}
	for _, test := range []struct {
		asks       bool
		seconds    int64
		capacities []Capacity
		want, why  string
	}{
		{true, 600, []Capacity{short, steady}, "a pilot", ""},
		{true, 601, []Capacity{short, steady}, "steady", ""},
		{true, 3600, []Capacity{short}, "", "No worker of queue cpu runs for as long as 1h0m: they end before that."},
		{false, 1 << 30, []Capacity{short}, "a pilot", ""}, // its owner's quota, which says nothing of the run
	} {
		if got, why := choose(test.asks, test.seconds, test.capacities...); got != test.want || why != test.why {
			t.Errorf("asks %v, %d s: %q, %q, want %q, %q", test.asks, test.seconds, got, why, test.want, test.why)
		}
	}
}

// random returns waiting runs of three owners, and workers of two users, one of whom is root.
func random(r *rand.Rand) (map[string]*Waiting, []Capacity, map[string]Quota) {
	runs, quotas := map[string]*Waiting{}, map[string]Quota{}
	for i := range 1 + r.IntN(30) {
		uuid := "0x" + strconv.Itoa(i)
		runs[uuid] = &Waiting{
			UUID: uuid, OwnerID: string(rune('a' + r.IntN(3))), Created: time.Unix(r.Int64N(9), 0), Priority: r.Int64N(3),
			Resources: codalab.Resources{CPUs: 1 + r.Int64N(4), GPUs: r.Int64N(2), Memory: r.Int64N(4) << 30, Tag: []string{"", "x", "y"}[r.IntN(3)]},
		}
	}
	var capacities []Capacity
	for i := range r.IntN(6) {
		size := codalab.Resources{CPUs: r.Int64N(9), GPUs: r.Int64N(3), Memory: r.Int64N(9) << 30, Disk: 1}
		user := []string{"a", root}[r.IntN(2)]
		capacities = append(capacities, Capacity{
			Worker: Worker{user, strconv.Itoa(i)}, Serves: Clientele{Everybody: user == root}, Tag: []string{"", "x", "y"}[r.IntN(3)],
			Exclusive: r.IntN(2) == 0, Total: size, Free: size, RunsLeft: r.Int64N(4),
		})
	}
	for _, owner := range []string{"a", "b", "c"} {
		quotas[owner] = Quota{Time: 1, Disk: 1 << 40, ParallelRuns: r.Int64N(4)}
	}
	return runs, capacities, quotas
}

// A worker that submits runs together gets as many at once, however few CPUs it has. Where another has room, that one comes first.
func TestWorkerThatSubmitsRunsTogetherGetsThemAtOnce(t *testing.T) {
	t.Parallel()
	match := func(workers ...Capacity) map[string]int {
		runs := map[string]*Waiting{}
		for i := range 100 {
			uuid := "0x" + strconv.Itoa(i)
			runs[uuid] = &Waiting{UUID: uuid, OwnerID: "me", Resources: codalab.Resources{CPUs: 2, Memory: minMemory, Disk: 1}}
		}
		d := Match(Site{}, runs, workers, RunCounts{}, map[string]Quota{"me": {Time: 1, Disk: 1 << 40, Entries: 1 << 20, ParallelRuns: 1000}})
		got := map[string]int{}
		for _, w := range d.Workers {
			got[w.ID]++
		}
		return got
	}
	worker := func(id string, ahead int64) Capacity {
		r := codalab.Resources{CPUs: 8, Memory: 1 << 40, Disk: 1 << 40}
		return Capacity{Worker: Worker{User: "me", ID: id}, Total: r, Free: r, RunsLeft: 1000, Ahead: ahead}
	}
	full := worker("full", 60)
	full.Free.Disk = 0
	exclusive := worker("exclusive", 60)
	exclusive.Exclusive, exclusive.Tag, exclusive.Free.CPUs = true, "", 0
	none := worker("none", -5)
	none.Free.CPUs = -8
	for _, test := range []struct {
		workers []Capacity
		want    map[string]int
	}{
		{[]Capacity{worker("alone", 0)}, map[string]int{"alone": 4}},
		{[]Capacity{worker("packs", 60)}, map[string]int{"packs": 60}},
		{[]Capacity{worker("packs", 60), worker("room", 0)}, map[string]int{"packs": 60, "room": 4}},
		{[]Capacity{worker("packs", 60), worker("arrays", 90)}, map[string]int{"packs": 50, "arrays": 50}},
		{[]Capacity{exclusive, worker("room", 0)}, map[string]int{"exclusive": 60, "room": 4}},
		{[]Capacity{full, none}, map[string]int{}},
	} {
		if got := match(test.workers...); !cmp.Equal(got, test.want) {
			t.Errorf("%d workers: %v, want %v", len(test.workers), got, test.want)
		}
	}
}

func TestMatchKeepsToCapacitiesAndQuotas(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	assigned := 0
	for range 1000 {
		runs, capacities, quotas := random(r)
		d := Match(Site{}, runs, capacities, nil, quotas)
		foreign := map[string]int64{}
		for i := range capacities {
			c, got, n := capacities[i], codalab.Resources{}, int64(0)
			for uuid, w := range d.Workers {
				if w != c.Worker {
					continue
				}
				run := runs[uuid]
				if got, n = Plus(got, run.Resources), n+1; !c.Takes(run) || c.Exclusive && c.Tag != run.Resources.Tag || run.Resources.Tag != "" && c.Tag != run.Resources.Tag {
					t.Fatalf("%+v goes to %+v", run, c)
				}
				if w.User != run.OwnerID {
					foreign[run.OwnerID]++
				}
			}
			if assigned += int(n); n > c.RunsLeft || !fits(got, c.Total) {
				t.Fatalf("%d runs of %+v on %+v", n, got, c)
			}
		}
		for owner, n := range foreign {
			if n > quotas[owner].ParallelRuns {
				t.Fatalf("%d runs of %s on others' workers, with a quota of %d", n, owner, quotas[owner].ParallelRuns)
			}
		}
		for uuid := range runs {
			if _, ok := d.Workers[uuid]; !ok && d.Status[uuid] == "" {
				t.Fatalf("run %s has no worker, and nothing tells why", uuid)
			}
		}
	}
	if assigned == 0 {
		t.Error("no run found a worker")
	}
}

func TestMatchDependsOnItsArgumentsOnly(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	for range 300 {
		runs, capacities, quotas := random(r)
		counts, given := RunCounts{"a": {All: 1}}, slices.Clone(capacities)
		first := Match(Site{}, runs, capacities, counts, quotas)
		again := Match(Site{}, runs, capacities, counts, quotas)
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
		if diff := cmp.Diff(given, capacities); diff != "" || len(counts) != 1 || counts["a"].All != 1 {
			t.Fatalf("Match changes its arguments: %v %s", counts, diff)
		}
	}
}

func TestDecisionAboutARunThatHasLeftIsNotApplied(t *testing.T) {
	t.Parallel()
	d := Decisions{Workers: map[string]Worker{"0xb": {"u", "w"}}, Status: map[string]string{"0xc": "why"}, Failed: map[string]string{"0xd": "why"}}
	for _, uuid := range []string{"0xb", "0xc", "0xd"} {
		b := Bundle{UUID: uuid, State: codalab.StateStaged}.Kill()
		if diff := cmp.Diff(b, d.Apply(b, time.Unix(9, 0))); diff != "" {
			t.Errorf("%s", diff)
		}
	}
}

// The bound is that of one owner's runs of one sweep, and holds up no other run.
func TestBoundOfASweepHoldsUpNoOtherRun(t *testing.T) {
	t.Parallel()
	r := codalab.Resources{CPUs: 1}
	runs := map[string]*Waiting{}
	add := func(uuid, owner, sweep string, bound int) {
		runs[uuid] = &Waiting{UUID: uuid, OwnerID: owner, Resources: r, Sweep: sweep, MaxParallel: bound}
	}
	for i := range 4 {
		n := strconv.Itoa(i)
		add("a"+n, "me", "s", 2)
		add("b"+n, "me", "t", 0)
		add("c"+n, "you", "s", 2)
		add("d"+n, "me", "", 0)
	}
	capacity := Capacity{
		Worker: Worker{User: root, ID: "w"}, Serves: Clientele{Everybody: true}, RunsLeft: 99,
		Total: codalab.Resources{CPUs: 99, Memory: 1 << 40, Disk: 1 << 40}, Free: codalab.Resources{CPUs: 99, Memory: 1 << 40, Disk: 1 << 40},
	}
	counts := RunCounts{}
	counts.AddSweep("me", "s")
	quotas := map[string]Quota{"me": {ParallelRuns: 99}, "you": {ParallelRuns: 99}}
	d := Match(Site{}, runs, []Capacity{capacity}, counts, quotas)
	got := map[byte]int{}
	for uuid := range d.Workers {
		got[uuid[0]]++
	}
	if diff := cmp.Diff(map[byte]int{'a': 1, 'b': 4, 'c': 2, 'd': 4}, got); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}
	if counts["me"].Sweeps["s"] != 1 {
		t.Errorf("Match changed its caller's counts: %v", counts)
	}
	if len(d.Status) != 5 || d.Status["c0"]+d.Status["c1"]+d.Status["c2"] == "" {
		t.Errorf("status: %v", d.Status)
	}
}
