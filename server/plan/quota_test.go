package plan

import (
	"math/rand/v2"
	"slices"
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

// However the bytes of an owner's uploads come, and whichever of them fail, the owner's disk use stays within
// the quota. An upload replaces the contents of its bundle.
func TestUploadsOfAnOwnerStayWithinTheQuota(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		quota, slack := r.Int64N(64<<20), int64(0)
		contents := []int64{quota / 2, quota / 4, quota / 8, 0}
		uploads := make([]Upload, len(contents))
		used := func() (sum int64) { return contents[0] + contents[1] + contents[2] + contents[3] }
		begin := func(i int) { uploads[i], slack = Upload{Replaced: contents[i]}, 0 }
		for i := range uploads {
			begin(i)
		}
		for range 200 {
			i, n := r.IntN(len(uploads)), 1+r.Int64N(1<<20)
			switch r.IntN(16) {
			case 0: // it succeeds
				contents[i] = uploads[i].Held
				begin(i)
			case 1, 2: // it fails
				begin(i)
			default:
				if n > slack {
					next, left := slices.Clone(uploads), quota-used()
					if next[i].Held += n; next[i].Held > next[i].Most(slices.Delete(slices.Clone(uploads), i, i+1), left) {
						break
					}
					slack = n + Slack(next, left)
				}
				uploads[i].Held, slack = uploads[i].Held+n, slack-n
			}
			most := used()
			for _, u := range uploads {
				most += u.Growth()
			}
			if most > quota || slack < 0 || slack > mostSlack {
				t.Fatalf("%+v may use %d of %d bytes; the slack is %d", uploads, most, quota, slack)
			}
		}
	}
}

func TestSlackIsAsLargeAsItMayBe(t *testing.T) {
	t.Parallel()
	small := Upload{Held: 1, Replaced: 9 << 20}
	for _, test := range []struct {
		uploads     []Upload
		left, slack int64
	}{
		{[]Upload{small}, 1 << 40, mostSlack},
		{[]Upload{small}, 0, mostSlack},        // its own room
		{[]Upload{small}, -6 << 20, 3<<20 - 1}, // more than the quota is used
		{[]Upload{small}, -1 << 40, 0},
		{[]Upload{small, {}}, 0, 0},
		{[]Upload{small, {Held: 5}}, 7, 2},
		{[]Upload{{Held: 9 << 20, Replaced: 9 << 20}}, 0, 0},
	} {
		if slack := Slack(test.uploads, test.left); slack != test.slack {
			t.Errorf("%+v with %d bytes left: %d, want %d", test.uploads, test.left, slack, test.slack)
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
