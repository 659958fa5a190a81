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
		{"request_disk", "2049m"}: "Requested more disk (2.0g) than user disk quota left (2g) by 1m",
		{"request_time", "90m"}:   "Requested more time (1h30m) than user time quota left (1h0m) by 30m0s",
		{"request_memory", "9g"}:  "Requested more memory (9g) than maximum limit (8g) by 1g",
		{"request_memory", "1m"}:  "Requested less memory (1m) than minimum limit (4m) by 3m",
		{"request_memory", "4m"}:  "",
		{"request_time", "1h"}:    "",
		{"request_disk", "2g"}:    "", // all that is left: no hidden part of it is kept back
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

// A quota that is exceeded, as by the running runs that the reason names, leaves nothing. No reason names less.
func TestQuotaLeftIsNeverNegative(t *testing.T) {
	t.Parallel()
	owner := Quota{Disk: 1 << 30, DiskUsed: 1400 << 20, Time: 60, TimeUsed: 90, Running: RunningUse{Disk: 900 << 20, Time: 80}}
	for request, want := range map[[2]string]string{
		{"request_disk", "40m"}: "Requested more disk (40m) than user disk quota left (0) by 40m: 1.4g / 1g (136.7%) is used, 900m of it by running runs",
		{"request_time", "1m"}:  "Requested more time (1m0s) than user time quota left (0.0s) by 1m0s: 1m30s / 1m0s (150.0%) is used, 1m20s of it by running runs",
	} {
		m := codalab.Metadata{request[0]: request[1]}
		site := Site{}
		if got := site.Refuses(NewWaiting(Bundle{Metadata: m}, site.Resources(m)), owner); got != want {
			t.Errorf("%v: %q, want %q", request, got, want)
		}
	}
	if left := owner.Left(); left != (codalab.Space{}) || owner.TimeLeft() != 0 {
		t.Errorf("%+v and %d s are left", left, owner.TimeLeft())
	}
	want := "Out of time quota: 1m30s / 1m0s (150.0%), 1m20s of it by running runs"
	if got := owner.RefusesNew(); got != want {
		t.Errorf("%q, want %q", got, want)
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
		{Quota{Time: 10, TimeUsed: 9, Disk: 10, DiskUsed: 9, Entries: 10, EntriesUsed: 9}, "", ""},
		{Quota{Time: 10, Disk: 10, Entries: 10, EntriesUsed: 11}, "Out of the quota of files, directories, links and bundles: 11 / 10 (110.0%)", ""},
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
	ended := onWorker(codalab.StateRunning).Fill("results", codalab.Extent{Bytes: 1, Entries: 1})
	if run := ended.KillOverQuota(Quota{}); run.KillMessage != "" {
		t.Errorf("a run whose results are here is killed with %q", run.KillMessage)
	}
	run := onWorker(codalab.StateRunning).Kill().KillOverQuota(Quota{})
	if run.KillMessage != codalab.KillRequested {
		t.Errorf("a run that its user killed is told %q", run.KillMessage)
	}
}

// However the bytes and entries of an owner's uploads come, and whichever of them fail, the owner's disk use stays
// within the quota. An upload replaces the contents of its bundle.
func TestUploadsOfAnOwnerStayWithinTheQuota(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	space := func(bytes, entries int64) codalab.Space {
		return codalab.Space{Bytes: r.Int64N(bytes), Entries: r.Int64N(entries)}
	}
	part := func(s codalab.Space, n int64) codalab.Space {
		return codalab.Space{Bytes: s.Bytes / n, Entries: s.Entries / n}
	}
	for range 500 {
		quota, slack := space(64<<20, 20000), codalab.Space{}
		contents := []codalab.Space{part(quota, 2), part(quota, 4), part(quota, 8), {}}
		uploads := make([]Upload, len(contents))
		used := func() codalab.Space { return contents[0].Plus(contents[1]).Plus(contents[2]).Plus(contents[3]) }
		begin := func(i int) { uploads[i], slack = Upload{Replaced: contents[i]}, codalab.Space{} }
		for i := range uploads {
			begin(i)
		}
		for range 200 {
			i, n := r.IntN(len(uploads)), space(1<<20, 400)
			switch r.IntN(16) {
			case 0: // it succeeds
				contents[i] = uploads[i].Held
				begin(i)
			case 1, 2: // it fails
				begin(i)
			default:
				if !n.Within(slack) {
					next, left := slices.Clone(uploads), quota.Minus(used())
					next[i].Held = next[i].Held.Plus(n)
					if !next[i].Held.Within(next[i].Most(slices.Delete(slices.Clone(uploads), i, i+1), left)) {
						break
					}
					slack = n.Plus(Slack(next, left))
				}
				uploads[i].Held, slack = uploads[i].Held.Plus(n), slack.Minus(n)
			}
			most := used()
			for _, u := range uploads {
				most = most.Plus(u.Growth())
			}
			if !most.Within(quota) || !(codalab.Space{}).Within(slack) || !slack.Within(mostSlack()) {
				t.Fatalf("%+v may use %+v of %+v; the slack is %+v", uploads, most, quota, slack)
			}
		}
	}
}

func TestSlackIsAsLargeAsItMayBe(t *testing.T) {
	t.Parallel()
	bytes := func(n int64) codalab.Space { return codalab.Space{Bytes: n} }
	small := Upload{Held: bytes(1), Replaced: bytes(9 << 20)}
	most := mostSlack().Bytes
	for _, test := range []struct {
		uploads     []Upload
		left, slack int64
	}{
		{[]Upload{small}, 1 << 40, most},
		{[]Upload{small}, 0, most},             // its own room
		{[]Upload{small}, -6 << 20, 3<<20 - 1}, // more than the quota is used
		{[]Upload{small}, -1 << 40, 0},
		{[]Upload{small, {}}, 0, 0},
		{[]Upload{small, {Held: bytes(5)}}, 7, 2},
		{[]Upload{{Held: bytes(9 << 20), Replaced: bytes(9 << 20)}}, 0, 0},
	} {
		if slack := Slack(test.uploads, bytes(test.left)); slack != bytes(test.slack) {
			t.Errorf("%+v with %d bytes left: %+v, want %d", test.uploads, test.left, slack, test.slack)
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
