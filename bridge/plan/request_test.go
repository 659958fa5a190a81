package plan_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// The nodes of a queue of another architecture run a worker that was built for
// them.
func TestJobRunsTheWorkerOfItsQueue(t *testing.T) {
	t.Parallel()
	r := plan.Row{Bundle: uuid, Attempt: plan.Attempt{Number: 1}, Run: &codalab.RunBundle{}}
	for want, q := range map[string]plan.Queue{"exec '/bin/own'": {}, "exec '/bin/arm'": {Worker: sbatch.Program{Path: "/bin/arm"}}} {
		p := plan.Policy{Worker: sbatch.Program{Path: "/bin/own"}, Queues: map[string]plan.Queue{"": q}}
		if got := p.Request(r).Script; !strings.Contains(got, want+" exec --submission=.0 '") {
			t.Errorf("%q, want %s", got, want)
		}
	}
}

// A bundle's own choice counts; without one the queue's has priority over the server's.
func TestImageOfABundleThatNamesNone(t *testing.T) {
	t.Parallel()
	site := plan.Queue{DefaultCPUImage: "site/cpu:1", DefaultGPUImage: "site/gpu:1"}
	for name, c := range map[string]struct {
		queue               plan.Queue
		asked, server, want string
		gpus                int64
	}{
		"asked for":            {site, "python:3", "python:3", "python:3", 0},
		"a file":               {site, "/i/x.sif", "/i/x.sif:latest", "/i/x.sif", 0},
		"the server's":         {plan.Queue{}, "", "server/cpu:1", "server/cpu:1", 0},
		"the queue's":          {site, "", "server/cpu:1", "site/cpu:1", 0},
		"the queue's for GPUs": {site, "", "server/gpu:1", "site/gpu:1", 2},
		"none":                 {plan.Queue{}, "", "", "codalab/default-cpu:latest", 0},
		"none for GPUs":        {plan.Queue{}, "", "", "codalab/default-gpu:latest", 1},
	} {
		r := plan.Row{Queue: "q", Resources: codalab.Resources{ImageReference: c.server, GPUs: c.gpus}, Run: &codalab.RunBundle{
			Metadata: codalab.Metadata{"request_docker_image": c.asked},
		}}
		if got := (plan.Policy{Queues: map[string]plan.Queue{"q": c.queue}}).ImageReference(r); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The server would stage a bundle repeatedly that no worker takes.
func TestUnreadableRequestIsRefusedInWords(t *testing.T) {
	t.Parallel()
	messages, _, err := codalab.ParseMessages([]byte(`[{"type":"run","bundle":{"uuid":"` + uuid + `"},"resources":{"time":NaN}}]`))
	if err != nil {
		t.Fatal(err)
	}
	p := policy()
	r, _ := p.Next(epoch, plan.NewRow(epoch, "cpu", messages[0]), plan.News{})
	r, _ = p.Next(epoch, r, plan.News{Claimed: &plan.Claimed{Accepted: true}})
	report := r.Report("worker")
	want := `The server sent "NaN" for --request-time, which is not between 0 and 3153600000.`
	if r.Phase != plan.Finalizing || report.FailureMessage == nil || *report.FailureMessage != want {
		t.Errorf("%s: %+v", r.Phase, report)
	}
}

func TestRequestIsTheRowsJob(t *testing.T) {
	t.Parallel()
	full := plan.Queue{
		Name: "gpu", Tag: "gpu", Partition: "gpu", Account: "lab", QOS: "normal", WCKey: "proj1", Reservation: "course",
		Constraint: "a100", GPUType: "a100", DefaultTime: time.Hour, MaxTime: 2 * time.Hour, TimeGrace: 2 * time.Minute,
		MemoryOverhead: 64 << 20, Extra: []string{"--licenses=matlab"},
	}
	common := []string{
		"--parsable", "--export=ALL", "--propagate=NONE", "--no-requeue", "--open-mode=append", "--nodes=1", "--ntasks=1",
		"--job-name=" + string(submission), "--comment=codalab bundle=" + uuid + " attempt=1 owner=1 bridge=b1b2b3 generation=1 dir=1-b1b2b3 identity=b3bcfd276fc3d3b1",
	}
	place := []string{
		"--chdir=/shared/spool/" + uuid + "/1-b1b2b3", "--output=/shared/spool/" + uuid + "/1-b1b2b3/slurm.out",
	}
	for _, c := range []struct {
		name      string
		queue     plan.Queue
		resources codalab.Resources
		priority  int64
		want      []string
	}{
		{"nothing asked for", plan.Queue{}, codalab.Resources{}, 0, []string{"--cpus-per-task=1"}},
		{
			"everything", full,
			codalab.Resources{CPUs: 4, GPUs: 2, Memory: 8 << 30, Time: 1800},
			-5,
			[]string{
				"--partition=gpu", "--account=lab", "--qos=normal", "--wckey=proj1", "--reservation=course", "--constraint=a100",
				"--cpus-per-task=4", "--mem=8256M", "--gres=gpu:a100:2", "--time=32", "--nice=5",
			},
		},
		{"no GPU, no type", plan.Queue{GPUType: "a100"}, codalab.Resources{CPUs: 1}, 7, []string{"--cpus-per-task=1"}},
		{"any GPU", plan.Queue{}, codalab.Resources{CPUs: 1, GPUs: 1}, 0, []string{"--cpus-per-task=1", "--gres=gpu:1"}},
		{
			"odd bytes are rounded up",
			plan.Queue{},
			codalab.Resources{CPUs: 1, Memory: 1},
			0,
			[]string{"--cpus-per-task=1", "--mem=1M"},
		},
		{
			"time is the queue's where none is asked for",
			plan.Queue{DefaultTime: time.Hour, TimeGrace: time.Minute},
			codalab.Resources{CPUs: 1},
			0,
			[]string{"--cpus-per-task=1", "--time=61"},
		},
		{
			"the largest time where there is no other",
			plan.Queue{MaxTime: 10 * time.Minute, TimeGrace: time.Minute},
			codalab.Resources{CPUs: 1},
			0,
			[]string{"--cpus-per-task=1", "--time=10"},
		},
		{
			"a grace for checkpoints is asked for at the beginning of a preemption",
			plan.Queue{KillGrace: 10 * time.Minute},
			codalab.Resources{CPUs: 1},
			0,
			[]string{"--cpus-per-task=1"},
		},
		{
			"grace goes no further than the limit",
			plan.Queue{MaxTime: time.Hour, TimeGrace: time.Minute},
			codalab.Resources{CPUs: 1, Time: 3600},
			0,
			[]string{"--cpus-per-task=1", "--time=60"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, r := policy(), rowIn(plan.Submitting)
			p.Queues = map[string]plan.Queue{"cpu": c.queue}
			r.Resources = c.resources
			r.Run.Metadata = codalab.Metadata{"request_priority": c.priority}
			got := p.Request(r)
			want := append(append(append([]string{}, common...), c.want...), place...)
			want = append(want, c.queue.Extra...)
			if c.queue.KillGrace > 0 {
				want = append(want, "--signal=B:TERM@1")
			}
			if diff := cmp.Diff(want, got.Args()); diff != "" {
				t.Errorf("options of sbatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJobsLookForProgramsInTheQueuesPathFirst(t *testing.T) {
	t.Parallel()
	q := plan.Queue{Path: []string{"/opt/apptainer/bin", "/opt/fuse/bin"}}
	want := []string{"PATH=/opt/apptainer/bin:/opt/fuse/bin:" + sbatch.DefaultPath}
	if diff := cmp.Diff(want, q.Request(0).Env); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (plan.Queue{}).Request(0).Env; got != nil {
		t.Errorf("without a path: %q", got)
	}
}

func TestScriptIsConstantAndEndsInExec(t *testing.T) {
	t.Parallel()
	p, r := policy(), rowIn(plan.Submitting)
	p.Layout, p.Worker = "/data/ann's lab", sbatch.Program{Path: "/data/ann's lab/bin/x/cl-worker"}
	r.Run.Command = "echo $(rm -rf /)"
	want := "#!/bin/sh\nexec '/data/ann'\\''s lab/bin/x/cl-worker' exec --submission=b1b2b3.1 '/data/ann'\\''s lab/spool/" + uuid + "/1-b1b2b3/spec.json'\n"
	if got := p.Request(r).Script; got != want {
		t.Errorf("script %q, want %q", got, want)
	}
}

func TestSpecIsWhatTheWorkerIsTold(t *testing.T) {
	t.Parallel()
	p, r := policy(), rowIn(plan.Submitting)
	q := p.Queues["cpu"]
	q.Scratch, q.WorkingDirDisk, q.Runtime, q.ShmBytes = "/local", spool.WorkingDirLocal, runtimes.Apptainer, 1<<30
	p.Queues = map[string]plan.Queue{"cpu": q}
	r.Run.Command = "python train.py"
	r.Resources = codalab.Resources{CPUs: 4, GPUs: 2, Memory: 2 << 30, Disk: 1 << 30, Network: true}
	r.Staged.Dependencies = []spool.Dependency{{ChildPath: "data", Source: "/shared/cache/d"}}
	want := spool.Spec{
		Bundle: uuid, Attempt: 1, SubmissionName: string(submission), Submission: "b1b2b3.1", Command: "python train.py", Inputs: *r.Staged,
		RunDir: "/shared/runs/" + uuid + "/1-b1b2b3", Scratch: "/local", WorkingDirDisk: spool.WorkingDirLocal, Runtime: runtimes.Apptainer, GPUs: 2, MemoryBytes: 2 << 30, DiskBytes: 1 << 30, Seconds: 3600, Network: true, ShmBytes: 1 << 30,
	}
	if diff := cmp.Diff(want, p.Spec(r)); diff != "" {
		t.Errorf("specification (-want +got):\n%s", diff)
	}
	q.DefaultDisk = 5 << 30
	p.Queues["cpu"] = q
	for asked, want := range map[int64]int64{0: 5 << 30, 6 << 30: 6 << 30} {
		r.Resources.Disk = asked
		if got := p.Spec(r).DiskBytes; got != want {
			t.Errorf("disk limit %d where %d was asked for, want %d", got, asked, want)
		}
	}
	for network, want := range map[plan.Network][3]bool{"": {true, false, false}, plan.NetworkByRequest: {true, false, false}, plan.NetworkOfHost: {true, true, false}, plan.NetworkNever: {false, false, true}} {
		q.Network = network
		p.Queues["cpu"] = q
		if got := p.Spec(r); [3]bool{got.Network, got.HostNetwork, got.NetworkDenied} != want {
			t.Errorf("network %q: %+v", network, got)
		}
		without := r
		without.Resources.Network = false
		if got := p.Spec(without); got.Network || got.HostNetwork || got.NetworkDenied {
			t.Errorf("network %q, and the bundle requests none: %+v", network, got)
		}
	}
	r.Resources.Time = 60
	if got := p.Spec(r).Seconds; got != 60 {
		t.Errorf("limit %v s, want what was asked for", got)
	}
	q.KillGrace, q.MaxTime = 10*time.Minute, time.Hour
	p.Queues["cpu"] = q
	for asked, want := range map[int64]float64{60: 60, 3600: 3480} {
		r.Resources.Time = asked
		if got := p.Spec(r); got.Seconds != want || got.KillGraceSeconds != 600 {
			t.Errorf("with a grace for checkpoints, %d s asked for: limit %v s, grace %v s", asked, got.Seconds, got.KillGraceSeconds)
		}
	}
}

func TestBatchTakesThePriorAndThenTheOlderAndNamesThem(t *testing.T) {
	t.Parallel()
	p := policy()
	p.Owner = "ann@example.org x"
	var staged []*plan.Row
	for i, c := range []struct {
		bundle   string
		priority int64
	}{{"0xb0", 0}, {"0xa0", 0}, {"0xc0", 5}, {"0xd0", -1}, {"0xe0", 0}} {
		r := rowIn(plan.Staging)
		r.Bundle, r.Run.Metadata = c.bundle, codalab.Metadata{"request_priority": c.priority}
		if i == 4 {
			r.OfferedAt = epoch.Add(-time.Second)
		}
		staged = append(staged, &r)
	}
	staged[2].Bundle, staged[2].Attempt.Number = uuid, 2
	batch := func(rows []*plan.Row, room, budget int) []plan.Row {
		chosen, _ := p.Batch(epoch, plan.Waiting{Rows: rows, MaySubmit: map[string]int{"cpu": room}, Budget: budget}, nil, 10)
		return chosen
	}
	var got []string
	for _, r := range batch(staged, 4, 9) {
		got = append(got, string(r.SubmissionName))
		if r.Phase != plan.Submitting || !r.SubmittedAt.IsZero() {
			t.Errorf("row %+v, want it in submitting and not submitted", r)
		}
	}
	want := []string{
		"cl-ann_example_org_x-0123456789ab.3-11-b1b2b3", "cl-ann_example_org_x-0xe0.1-12-b1b2b3",
		"cl-ann_example_org_x-0xa0.1-13-b1b2b3", "cl-ann_example_org_x-0xb0.1-14-b1b2b3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("submission names (-want +got):\n%s", diff)
	}
	if staged[0].Attempt.Number != 0 || len(batch(staged, 0, 9)) != 0 || len(batch(staged, 9, 0)) != 0 || len(batch(nil, 3, 3)) != 0 {
		t.Error("the argument was changed, or rows were taken without room")
	}
}

func TestQueueMaySubmitTheLeastOfAllBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		most, inFlight int
		budget         int
		want           int
	}{
		{"no bound", 0, 1000, 7, 7},
		{"the queue's", 10, 8, 7, 2},
		{"full", 10, 10, 7, 0},
		{"more than full", 10, 12, 7, 0},
		{"less than nothing", 0, 0, -1, 0},
		{"the rate's", 10, 0, 0, 0},
	} {
		if got := (plan.Queue{MaxInFlight: c.most}).MaySubmit(c.inFlight, c.budget); got != c.want {
			t.Errorf("%s: room %d, want %d", c.name, got, c.want)
		}
	}
}

// Staging, submitting and collecting read their part of the metadata from the row.
func TestRowKeepsTheMetadataThatTheBridgeReads(t *testing.T) {
	t.Parallel()
	read := codalab.Metadata{
		"created": 1_700_000_000, "exclude_patterns": []any{"*.tmp"}, "request_docker_image": "python:3", "request_priority": 7,
	}
	offered := maps.Clone(read)
	offered["description"], offered["tags"] = "not for the bridge", []any{"a"}
	m := codalab.Message{Type: codalab.MessageRun, Bundle: &codalab.RunBundle{UUID: "0x1", Command: "true", Metadata: offered}}
	if got := plan.NewRow(epoch, "cpu", m).Run; !cmp.Equal(got.Metadata, read) || got.Command != "true" {
		t.Errorf("the row has %+v, want the metadata %v", got, read)
	}
	if len(offered) != len(read)+2 {
		t.Error("the message has changed")
	}
}
