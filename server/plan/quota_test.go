package plan

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestRunsThatRequestTooMuchFail(t *testing.T) {
	t.Parallel()
	site := Site{MaxDisk: 2 << 30, MaxMemory: 8 << 30, MaxTime: 2 * time.Hour}
	owner := Quota{Disk: 2 << 30, Time: 3600, ParallelRuns: 9}
	for request, want := range map[[2]string]string{
		{"request_disk", "1800m"}: "Requested more disk (1.8g) than user disk quota left (1.5g) by 264m",
		{"request_time", "90m"}:   "Requested more time (1h30m) than user time quota left (1h0m) by 30m0s",
		{"request_memory", "9g"}:  "Requested more memory (9g) than maximum limit (8g) by 1g",
		{"request_memory", "1m"}:  "Requested less memory (1m) than minimum limit (4m) by 3m",
		{"request_memory", "4m"}:  "",
		{"request_time", "1h"}:    "",
		{"request_disk", "1g"}:    "",
	} {
		run := Bundle{UUID: "0xb", Type: codalab.TypeRun, State: codalab.StateStaged, OwnerID: "me", Metadata: codalab.Metadata{request[0]: request[1]}}
		waiting := NewWaiting(run, site.Resources(run.Metadata))
		d := Match(site, map[string]*Waiting{run.UUID: waiting}, nil, nil, map[string]Quota{"me": owner})
		if d.Failed[run.UUID] != want {
			t.Errorf("%v: %q, want %q", request, d.Failed[run.UUID], want)
		}
		if got := d.Apply(run, time.Unix(9, 0)); (got.State == codalab.StateFailed) != (want != "") || got.Metadata.String("failure_message") != want {
			t.Errorf("%v: %s %v", request, got.State, got.Metadata)
		}
	}
}

func TestRunThatRequestsNothingGetsWhatIsLeft(t *testing.T) {
	t.Parallel()
	site, m := Site{MaxDisk: 10 << 30, MaxTime: time.Hour, DefaultCPUImage: "cpu", DefaultGPUImage: "registry:5000/gpu"}, codalab.Metadata{}
	owner := Quota{Disk: 3 << 30, DiskUsed: 1 << 30, Time: 60, TimeUsed: 50}
	r := site.Resources(m)
	if r.CPUs != 1 || r.Memory != 2<<30 || r.Disk != 10<<30 || r.Time != 3600 || r.ImageReference != "cpu:latest" {
		t.Errorf("defaults: %+v", r)
	}
	if got := site.Cap(r, m, owner); !site.Caps(m) || got.Disk != 2<<30-1 || got.Time != 9 {
		t.Errorf("capped: %+v", got)
	}
	owner.DiskUsed, owner.TimeUsed = owner.Disk, owner.Time
	if got := site.Cap(r, m, owner); got.Disk != 1 || got.Time != 1 { // 0 would mean no limit
		t.Errorf("nothing is left: %+v", got)
	}
	m = codalab.Metadata{"request_disk": "1g", "request_time": "5m", "request_gpus": int64(1)}
	r = site.Resources(m)
	if got := site.Cap(r, m, owner); site.Caps(m) || got.Disk != 1<<30 || got.Time != 300 || got.ImageReference != "registry:5000/gpu:latest" {
		t.Errorf("requested: %+v", got)
	}
}

func TestImagesWithoutATagAreTheLatest(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"ubuntu": "ubuntu:latest", "ubuntu:22.04": "ubuntu:22.04", "host:5000/a/b": "host:5000/a/b:latest",
		"/images/x.sif": "/images/x.sif", "oci:/images/x": "oci:/images/x", "a@sha256:01": "a@sha256:01",
	} {
		if got := (Site{}).Resources(codalab.Metadata{"request_docker_image": image}).ImageReference; got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestUsedUpQuotaRefusesBundlesAndKillsRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		quota        Quota
		refuses, why string
	}{
		{Quota{Time: 10, TimeUsed: 9, Disk: 10, DiskUsed: 9}, "", ""},
		{Quota{Time: 60, TimeUsed: 90, Disk: 10}, "Out of time quota: 1m30s / 1m0s (150.0%)", "Kill requested: User time quota exceeded."},
		{Quota{Time: 10, Disk: 1 << 30, DiskUsed: 1 << 30}, "Out of disk quota: 1g / 1g (100.0%)", "Kill requested: User disk quota exceeded."},
		{Quota{}, "Out of time quota: 0.0s / 0.0s (100.0%)", "Kill requested: User time quota exceeded."},
	} {
		if got := test.quota.RefusesNew(); got != test.refuses {
			t.Errorf("%+v refuses %q", test.quota, got)
		}
		run := onWorker(codalab.StateRunning).KillOverQuota(test.quota)
		if !strings.HasPrefix(run.KillMessage, test.why) || (run.KillMessage == "") != (test.why == "") {
			t.Errorf("%+v kills with %q", test.quota, run.KillMessage)
		}
	}
	run := onWorker(codalab.StateRunning).Kill().KillOverQuota(Quota{})
	if run.KillMessage != codalab.KillRequested {
		t.Errorf("a run that its user killed is told %q", run.KillMessage)
	}
}

// All uploads of an owner share one account. However their bytes come, they stay within the quota.
func TestUploadsOfAnOwnerStayWithinTheQuota(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		quota, used := r.Int64N(64<<20), int64(0)
		var a Account
		var uploads [4]int64
		for range 100 {
			i, n := r.IntN(len(uploads)), r.Int64N(1<<20)
			switch r.IntN(8) {
			case 0:
				a, used, uploads[i] = a.Settle(uploads[i]), used+uploads[i], 0
			case 1:
				a, uploads[i] = a.Rewind(uploads[i]), 0
			default:
				ok := a.Covers(n)
				if !ok {
					a, ok = a.Reserve(n, quota-used)
				}
				if !ok && used+a.Written+n <= quota {
					t.Fatalf("%d bytes are refused: %d of %d are used, %d written", n, used, quota, a.Written)
				}
				if ok {
					a, uploads[i] = a.Write(n), uploads[i]+n
				}
			}
			if sum := uploads[0] + uploads[1] + uploads[2] + uploads[3]; a.Written != sum || used+a.Written > quota || a.Reserved < a.Written {
				t.Fatalf("%+v with uploads of %d bytes; %d of %d are used", a, sum, used, quota)
			}
		}
	}
}

// The end of the owner's other runs does not help a run that no worker can take.
func TestQuotaOfParallelRunsHidesNoOtherReason(t *testing.T) {
	t.Parallel()
	for memory, want := range map[string]string{
		"2g":  "1 of your runs are on workers, as many as your quota of parallel runs allows.",
		"99g": "99g memory",
	} {
		run := Bundle{UUID: "0xb", Type: codalab.TypeRun, State: codalab.StateStaged, OwnerID: "me", Metadata: codalab.Metadata{"request_memory": memory}}
		waiting := NewWaiting(run, Site{}.Resources(run.Metadata))
		worker := Capacity{Worker: Worker{User: "lab", ID: "w"}, Serves: Clientele{Everybody: true}, RunsLeft: 9}
		worker.Total = codalab.Resources{CPUs: 4, Memory: 8 << 30, Disk: 1 << 40}
		worker.Free = worker.Total
		counts := RunCounts{}
		counts.Add("me", worker.Worker)
		d := Match(Site{}, map[string]*Waiting{run.UUID: waiting}, []Capacity{worker}, counts, map[string]Quota{"me": {ParallelRuns: 1, Disk: 1 << 40, Time: 1 << 40}})
		if got := d.Status[run.UUID]; !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", memory, got, want)
		}
	}
}
