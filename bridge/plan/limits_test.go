package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

var (
	lab       = sbatch.LimitHolder{Account: "lab"}
	userOfLab = sbatch.LimitHolder{Account: "lab", User: "bridge"}
	normal    = sbatch.LimitHolder{QOS: "normal"}
	userOfQOS = sbatch.LimitHolder{QOS: "normal", User: "bridge"}
	labOfQOS  = sbatch.LimitHolder{QOS: "normal", Account: "lab"}
)

func limited(h sbatch.LimitHolder, kind sbatch.LimitKind, tres string, most int64) sbatch.Limit {
	return sbatch.Limit{Holder: h, Kind: kind, TRES: tres, Most: most}
}

func usedLimit(l sbatch.Limit, n int64) sbatch.Limit {
	l.Used, l.Known = n, true
	return l
}

func TestLimitsAreSaidInWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit           sbatch.Limit
		words, sentence string
	}{
		{usedLimit(limited(lab, sbatch.GrpJobs, "", 40), 38), "account lab: 38 of 40 jobs run", "Account lab may run 40 jobs at once, and 38 run."},
		{limited(lab, sbatch.GrpJobs, "", 1), "account lab: at most 1 job run", "Account lab may run 1 job at once."},
		{usedLimit(limited(userOfLab, sbatch.MaxJobs, "", 3), 3), "the bridge's Slurm user of account lab: 3 of 3 jobs run", "The bridge's Slurm user may run 3 jobs of account lab at once, and 3 run."},
		{usedLimit(limited(userOfQOS, sbatch.MaxSubmitJobsPU, "", 2), 2), "the bridge's Slurm user with QOS normal: 2 of 2 jobs wait or run", "The bridge's Slurm user may have 2 jobs with QOS normal in Slurm at once, and has 2."},
		{usedLimit(limited(labOfQOS, sbatch.MaxTRESPA, "gres/gpu:a100", 8), 6), "account lab with QOS normal: 6 of 8 a100 GPUs in use", "Account lab may use 8 a100 GPUs with QOS normal at once, and uses 6."},
		{usedLimit(limited(normal, sbatch.GrpTRES, "mem", 512000), 1024), "QOS normal: 1g of 500g of memory in use", "QOS normal may use 500g of memory at once, and uses 1g."},
		{limited(normal, sbatch.MaxTRESPJ, "cpu", 8), "QOS normal: at most 8 CPUs for a job", "QOS normal allows one job at most 8 CPUs."},
		{limited(normal, sbatch.MaxTRESPN, "gres/gpu", 1), "QOS normal: at most 1 GPU for a job on each node", "QOS normal allows one job at most 1 GPU on each node."},
		{limited(normal, sbatch.MaxWallPJ, "", 2880), "QOS normal: at most 2d for a job", "QOS normal allows one job at most 2d."},
		{usedLimit(limited(lab, sbatch.GrpTRESMins, "cpu", 6000), 5990), "account lab: 5990 of 6000 CPU minutes used up", "Account lab may use up 6000 CPU minutes, and has used 5990."},
		{usedLimit(limited(lab, sbatch.GrpTRESRunMins, "gres/gpu", 100), 1), "account lab: 1 of 100 GPU minutes left to jobs that run", "Account lab may have 100 GPU minutes left in jobs that run, and has 1."},
		{limited(lab, sbatch.MaxTRESMinsPJ, "mem", 5), "account lab: at most 5 MiB-minutes of memory for a job", "Account lab allows one job at most 5 MiB-minutes of memory."},
		{usedLimit(limited(lab, sbatch.GrpWall, "", 90), 0), "account lab: 0 of 90 minutes of run time used up", "Account lab may use up 90 minutes of run time, and has used 0."},
		{limited(sbatch.LimitHolder{Account: "lab", User: "u", Partition: "gpu"}, sbatch.MaxJobs, "", 1), "the bridge's Slurm user of account lab in partition gpu: at most 1 job run", "The bridge's Slurm user may run 1 job of account lab in partition gpu at once."},
		{limited(lab, sbatch.GrpTRES, "license/matlab", 3), "account lab: at most 3 of license/matlab in use", "Account lab may use 3 of license/matlab at once."},
	} {
		if got := plan.LimitWords(c.limit); got != c.words {
			t.Errorf("words: %q, want %q", got, c.words)
		}
		if got := plan.LimitSentence(c.limit); got != c.sentence {
			t.Errorf("sentence: %q, want %q", got, c.sentence)
		}
	}
}

var labKind = plan.JobKind{Account: "lab"}

func TestReachedLimitIsTheOneThatSlurmsReasonNames(t *testing.T) {
	t.Parallel()
	all := plan.Limits{labKind: {
		usedLimit(limited(lab, sbatch.GrpJobs, "", 40), 40), usedLimit(limited(userOfLab, sbatch.MaxJobs, "", 3), 1),
		usedLimit(limited(normal, sbatch.GrpTRES, "cpu", 100), 98), usedLimit(limited(lab, sbatch.GrpTRES, "cpu", 200), 98),
		usedLimit(limited(sbatch.LimitHolder{Account: "root"}, sbatch.GrpTRES, "cpu", 99), 98),
		usedLimit(limited(labOfQOS, sbatch.MaxJobsPA, "", 5), 5),
	}}
	for reason, want := range map[string]string{
		"AssocGrpJobsLimit":    "Account lab may run 40 jobs at once, and 40 run.",
		"AssocMaxJobsLimit":    "The bridge's Slurm user may run 3 jobs of account lab at once, and 1 run.",
		"QOSGrpCpuLimit":       "QOS normal may use 100 CPUs at once, and uses 98.",
		"AssocGrpCpuLimit":     "Account root may use 99 CPUs at once, and uses 98.", // the fullest
		"MaxJobsPerAccount":    "Account lab may run 5 jobs with QOS normal at once, and 5 run.",
		"QOSGrpJobsLimit":      "", // not known
		"QOSMaxCpuPerJobLimit": "", // such a job never starts
		"Priority":             "", "": "", "AssocGrpTribblesLimit": "",
	} {
		if got := all.Reached(labKind, reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	if got := plan.Limits(nil).Reached(labKind, "AssocGrpJobsLimit"); got != "" {
		t.Errorf("without limits: %q", got)
	}
}

func TestCeilingIsWhatSomeJobOfTheQueueMayHave(t *testing.T) {
	t.Parallel()
	const none, gib = plan.NoCeiling, 1 << 30
	a, b := plan.JobKind{Account: "a"}, plan.JobKind{Account: "b"}
	bound := []sbatch.Limit{
		limited(normal, sbatch.MaxTRESPJ, "cpu", 8), limited(lab, sbatch.GrpTRES, "cpu", 4), limited(userOfQOS, sbatch.MaxTRESPU, "mem", 4096),
		limited(normal, sbatch.MaxTRESPN, "gres/gpu", 2), limited(normal, sbatch.MaxTRESPJ, "gres/gpu:a100", 1), limited(normal, sbatch.MaxWallPJ, "", 60),
		limited(lab, sbatch.GrpTRESMins, "cpu", 1), limited(lab, sbatch.MaxJobs, "", 1),
	}
	more := []sbatch.Limit{limited(normal, sbatch.MaxTRESPJ, "cpu", 16), limited(normal, sbatch.MaxTRESPJ, "gres/gpu:a100", 3), limited(normal, sbatch.MaxWallPJ, "", 90)}
	res := func(cpus, memory, gpus int64, types map[string]int64) sbatch.NodeResources {
		return sbatch.NodeResources{CPUs: cpus, Memory: memory, GPUs: gpus, GPUTypes: types}
	}
	for name, c := range map[string]struct {
		limits plan.Limits
		kinds  []plan.JobKind
		want   sbatch.NodeResources
		time   time.Duration
		ok     bool
	}{
		"all apply":            {plan.Limits{a: bound}, []plan.JobKind{a}, res(4, 4*gib, 2, map[string]int64{"a100": 1}), time.Hour, true},
		"the larger of owners": {plan.Limits{a: bound, b: more}, []plan.JobKind{a, b}, res(16, none, none, map[string]int64{"a100": 3}), 90 * time.Minute, true},
		"one is not bounded":   {plan.Limits{a: bound, b: nil}, []plan.JobKind{a, b}, res(none, none, none, map[string]int64{}), 0, false},
		"nothing is known":     {nil, []plan.JobKind{a}, res(none, none, none, map[string]int64{}), 0, false},
		"no kinds":             {plan.Limits{a: bound}, nil, sbatch.NodeResources{}, 0, false},
	} {
		got, ok := c.limits.Ceiling(c.kinds)
		if d := cmp.Diff(c.want, got.NodeResources); d != "" || got.Time != c.time || ok != c.ok {
			t.Errorf("%s: %v %v (-want +got):\n%s", name, got.Time, ok, d)
		}
	}
	ceiling, _ := plan.Limits{a: bound}.Ceiling([]plan.JobKind{a})
	sizes := sbatch.NodeSizes{res(64, 250*gib, 4, map[string]int64{"a100": 4}), res(128, gib, 0, nil), res(2, gib, 0, nil)}
	want := sbatch.NodeSizes{res(4, 4*gib, 2, map[string]int64{"a100": 1})} // the others fit into it
	if d := cmp.Diff(want, ceiling.Bound(sizes)); d != "" || sizes[0].CPUs != 64 || sizes[0].GPUTypes["a100"] != 4 {
		t.Errorf("bounded sizes (-want +got):\n%s", d)
	}
	above := ceiling.Exceeds(res(6, 0, 0, nil), 2*time.Hour)
	if got := strings.Join(above, " "); got != "Account lab may use 4 CPUs at once. QOS normal allows one job at most 1h." {
		t.Errorf("above: %q", got)
	}
}

// staged is a row of an owner that waits to be submitted.
func stagedFor(i int, queue, owner string) *plan.Row {
	r := rowIn(plan.Staging)
	r.Bundle, r.Queue = fmt.Sprintf("0x%032x", i), queue
	r.Run = &codalab.RunBundle{UUID: r.Bundle, OwnerID: owner}
	return &r
}

// Two queues and three owners share limits: no limit is exceeded, and whoever is below his limits goes on.
func TestRoomsOfSharedLimits(t *testing.T) {
	t.Parallel()
	p := policy()
	p.Queues = map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu", Account: "lab"}, "gpu": {Name: "gpu", Tag: "gpu", Account: "lab", QOS: "high"}}
	p.Map = []plan.Mapping{{Users: []string{"3"}, Billing: plan.Billing{Account: "nlp"}}}
	lab1, lab2, nlp := plan.JobKind{Account: "lab"}, plan.JobKind{Account: "lab", QOS: "high"}, plan.JobKind{Account: "nlp"}
	ofLab := usedLimit(limited(lab, sbatch.GrpSubmitJobs, "", 10), 6)
	limits := plan.Limits{lab1: {ofLab}, lab2: {ofLab, limited(sbatch.LimitHolder{QOS: "high"}, sbatch.GrpSubmitJobs, "", 1)}, nlp: {limited(sbatch.LimitHolder{Account: "nlp"}, sbatch.GrpJobs, "", 1)}}
	var waiting []*plan.Row
	for i := range 10 {
		waiting = append(waiting, stagedFor(3*i, "cpu", "1"), stagedFor(3*i+1, "gpu", "2"), stagedFor(3*i+2, "cpu", "3"))
	}
	// Of six jobs of the account one was the bridge's, and it has two now: three are left.
	rooms := limits.Rooms(p, plan.JobCounts{lab1: 2}, plan.JobCounts{lab1: 1})
	chosen, _ := p.Batch(epoch, plan.Waiting{Rows: waiting, MaySubmit: map[string]int{"cpu": 100, "gpu": 100}, Budget: 100, Rooms: rooms}, nil, 0)
	got := map[plan.JobKind]int{}
	for _, r := range chosen {
		got[p.JobKind(&r)]++
	}
	if want := map[plan.JobKind]int{lab1: 2, lab2: 1, nlp: 10}; !cmp.Equal(want, got) {
		t.Errorf("submitted %v, want %v", got, want)
	}
	full := rooms.Full(nil)
	want := map[plan.JobKind]string{lab1: "account lab may have 10 jobs in Slurm at once, and has 10", lab2: "account lab may have 10 jobs in Slurm at once, and has 10"}
	if d := cmp.Diff(want, full); d != "" {
		t.Errorf("full (-want +got):\n%s", d)
	}
	// One place is free again: the rows that wait are told nothing else before a tenth is.
	if d := cmp.Diff(want, limits.Rooms(p, plan.JobCounts{lab1: 4, lab2: 1}, plan.JobCounts{lab1: 1}).Full(full)); d != "" {
		t.Errorf("with one free place (-want +got):\n%s", d)
	}
	if again := limits.Rooms(p, plan.JobCounts{lab1: 3}, plan.JobCounts{lab1: 1}).Full(full); len(again) != 0 {
		t.Errorf("with two free places %v", again)
	}
}

// Owners whose rows wait for the same limit share its room in one turn, as they share the places of a queue; together they
// never get more than there is.
func TestArraysOfOneTurnShareTheRoomBelowALimit(t *testing.T) {
	t.Parallel()
	kind := plan.JobKind{Account: "lab"}
	for room, want := range map[int64]map[string][]int{
		100: {"1": {8}, "2": {8}, "3": {2}},
		7:   {"1": {3}, "2": {3}, "3": {1}},
		8:   {"1": {3}, "2": {3}, "3": {2}},
		2:   {"1": {1}, "2": {1}},
		0:   {},
	} {
		p := policy()
		p.MaxArraySize, p.Queues = 1001, map[string]plan.Queue{"cpu": {Name: "cpu", Account: "lab", ArrayTasks: 8}, "gpu": {Name: "gpu", Account: "lab", ArrayTasks: 8}}
		var waiting []*plan.Row
		for i := range 8 {
			waiting = append(waiting, stagedFor(i, "cpu", "1"), stagedFor(10+i, "gpu", "2"))
		}
		waiting = append(waiting, stagedFor(20, "cpu", "3"), stagedFor(21, "cpu", "3"))
		limits := plan.Limits{kind: {usedLimit(limited(lab, sbatch.GrpSubmitJobs, "", 1000), 1000-room)}}
		w := plan.Waiting{Rows: waiting, MaySubmit: map[string]int{"cpu": 100, "gpu": 100}, Budget: 100, Rooms: limits.Rooms(p, nil, nil)}
		chosen, _ := p.Batch(epoch, w, nil, 0)
		got, sizes := map[string][]int{}, map[int64]int{}
		for i, r := range chosen {
			if sizes[r.Generation]++; i+1 == len(chosen) || chosen[i+1].Generation != r.Generation {
				got[r.Run.OwnerID] = append(got[r.Run.OwnerID], sizes[r.Generation])
			}
		}
		if d := cmp.Diff(want, got); d != "" || int64(len(chosen)) > room {
			t.Errorf("room for %d jobs: %d submitted, by owner and submission (-want +got):\n%s", room, len(chosen), d)
		}
	}
}

func TestKindsOfJobsFollowTheTableOfOwners(t *testing.T) {
	t.Parallel()
	p := policy()
	p.Queues = map[string]plan.Queue{"cpu": {Name: "cpu", Account: "lab", Partition: "p"}, "gpu": {Name: "gpu"}}
	p.Map = []plan.Mapping{
		{Queues: []string{"cpu"}, Groups: []string{"g"}, Billing: plan.Billing{Account: "nlp", QOS: "high"}},
		{Users: []string{"mallory"}, Refuse: "No."},
		{Users: []string{"*"}, Billing: plan.Billing{QOS: "low"}},
		{Users: []string{"ann"}, Billing: plan.Billing{QOS: "never reached"}},
	}
	for queue, want := range map[string][]plan.JobKind{
		"cpu": {{"p", "lab", ""}, {"p", "nlp", "high"}, {"p", "lab", "low"}}, "gpu": {{}, {QOS: "low"}}, "gone": nil,
	} {
		if d := cmp.Diff(want, p.JobKinds(queue)); d != "" {
			t.Errorf("%s (-want +got):\n%s", queue, d)
		}
	}
}
