package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// queue is a worker that is a queue of a batch system, with nodes of 8 CPUs, 4 GPUs and 32g of memory, on which a run may
// request two hours.
func (s *site) queue(user, tag string) *testWorker {
	w := s.worker(user, "bridge-"+tag, tag)
	w.info.Instance, w.info.CPUs, w.info.MemoryBytes, w.info.GPUs = "1", 800, 3200<<30, 400
	w.info.Nodes = []codalab.NodeSize{{CPUs: 8, GPUs: 4, MemoryBytes: 32 << 30}}
	w.info.Queue = &codalab.QueueInfo{MaxSeconds: 7200, DefaultSeconds: 600, GPUTypes: map[string]int64{"a100": 4}, Running: 2, Waiting: 1, Nodes: 100, IdleNodes: 98, WaitSeconds: new(int64(30))}
	return w
}

// queues returns the queues that a user sees.
func (s *site) queues(user string) (list []codalab.Queue) {
	s.t.Helper()
	var answer struct{ Data []codalab.Queue }
	s.get(user, "/queues").ok().decode(&answer)
	return answer.Data
}

// seesQueues checks the tags that users see, and the users of each.
func (s *site) seesQueues(want map[string]map[string]codalab.QueueUsers) {
	s.t.Helper()
	for user, want := range want {
		got := map[string]codalab.QueueUsers{}
		for _, q := range s.queues(user) {
			got[q.Tag] = q.Serves
		}
		if diff := cmp.Diff(want, got); diff != "" {
			s.t.Errorf("%s sees (-want +got):\n%s", user, diff)
		}
	}
}

// The page of the queues says what cl queues prints.
func TestPageOfQueues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w := s.queue("root", "site")
	w.info.Queue.CPUImage, w.info.Queue.GPUImage = "debian:12", "cuda:12"
	w.checkIn()
	s.browse(t, "alice").shows(t, "/queues", http.StatusOK, ">8 CPUs, 32g, 4 GPUs (a100)<", ">10m, at most 2h<", ">everybody<", ">debian:12, with GPUs cuda:12<", ">about 30.0s<")
}

func TestQueueIsShownToThoseWhoseRunsItTakes(t *testing.T) {
	t.Parallel()
	s := whose(t) // alice and bob are in the group lab
	s.addUser("carol")
	lab := s.get("alice", "/groups/lab").ok().text("data", "id")
	carol := s.get("carol", "/user").ok().text("data", "id")
	s.account("everybody", store.Scope{})
	s.account("xlab", store.Scope{GroupUUID: lab}, store.Scope{OwnerID: carol})
	s.queue("root", "site").checkIn()
	s.queue("everybody", "open").checkIn()
	s.queue("xlab", "lab").checkIn()
	s.queue("bob", "bobs").checkIn()
	s.queue("bob", "shared").of("lab").checkIn()
	type users = codalab.QueueUsers
	all, group := users{Everybody: true}, users{Groups: []string{"lab"}}
	s.seesQueues(map[string]map[string]users{
		"alice": {"site": all, "open": all, "lab": group, "shared": {Groups: []string{"lab"}, PermittedTo: "bob"}},
		"bob":   {"site": all, "open": all, "lab": group, "bobs": {Users: []string{"bob"}}, "shared": {Users: []string{"bob"}, Groups: []string{"lab"}}},
		"carol": {"site": all, "open": all, "lab": {Users: []string{"carol"}}},
		"root": {
			"site": all, "open": all, "lab": {Users: []string{"carol"}, Groups: []string{"lab"}}, "bobs": {Users: []string{"bob"}},
			"shared": {Users: []string{"bob"}, Groups: []string{"lab"}, PermittedTo: "bob"},
		},
	})
	// Whom a queue does not serve learns nothing of it.
	if a := s.get("carol", "/queues").ok(); strings.Contains(a.body, "bob") || strings.Contains(a.body, "shared") || strings.Contains(a.body, `"lab"]`) {
		t.Errorf("carol sees %s", a.body)
	}
	// A new run inherits the permissions on its worksheet.
	const none = "Queue shared takes those bundles of its group on which the user of its worker has all permissions, and this one is none of them (queues now served: lab, open, site)."
	if got := s.checked("shared", nil).ok().text("meta", "warnings", 0); got != none {
		t.Errorf("%q", got)
	}
	s.share("alice", "worksheet", s.home("alice"), "lab", store.PermissionAll)
	if got := s.checked("shared", nil).ok().value("meta", "warnings"); got != nil {
		t.Errorf("%q", got)
	}
	s.call("carol", http.MethodPost, "/bundles?check_requests=1&worksheet="+s.home("carol"), runFor("shared", nil)).says(http.StatusOK, "queues now served: lab, open, site")
}

// runFor is a request for a run in a queue.
func runFor(queue string, more map[string]any) map[string]any {
	m := metadata("run", "job", more)
	m["request_queue"] = queue
	return object("bundles", map[string]any{"bundle_type": "run", "command": "x", "metadata": m})
}

func TestQueueShowsItsSizeItsLoadAndItsDefaults(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) {
		c.Hold = time.Millisecond
		c.Site = plan.Site{DefaultCPUImage: "cpu-image", DefaultGPUImage: "gpu-image"}
	})
	w := s.queue("root", "gpu")
	w.info.Queue.GPUImage, w.info.Closed, w.info.ExitAfterNumRuns, w.info.TagExclusive = "cuda:12", "the site's disk is full.", 0, false
	w.checkIn()
	s.worker("alice", "w1", "mine").checkIn()
	s.worker("alice", "w2", "mine").checkIn()
	want := []codalab.Queue{
		{
			Tag: "gpu", Default: true, Workers: 1, Sizes: w.info.Nodes, GPUTypes: map[string]int64{"a100": 4}, MaxTime: 7200, DefaultTime: 600,
			DefaultCPUImage: "cpu-image", DefaultGPUImage: "cuda:12", Running: 2, Waiting: 1, Nodes: 100, IdleNodes: 98, ExpectedWait: new(int64(30)),
			Serves: codalab.QueueUsers{Everybody: true}, Closed: "the site's disk is full",
		},
		{
			Tag: "mine", Workers: 2, Sizes: []codalab.NodeSize{{CPUs: 4, GPUs: 1, MemoryBytes: 1 << 34}}, DefaultCPUImage: "cpu-image", DefaultGPUImage: "gpu-image",
			Nodes: 2, IdleNodes: 2, Serves: codalab.QueueUsers{Users: []string{"alice"}},
		},
	}
	if diff := cmp.Diff(want, s.queues("alice")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A worker may be anybody's, and what it tells is shown to others and kept in memory.
func TestDescriptionOfAQueueIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
	w := s.queue("root", "gpu")
	long := strings.Repeat("x", 1<<16)
	*w.info.Queue = codalab.QueueInfo{MaxSeconds: -1, Running: -5, Waiting: 1 << 62, CPUImage: long, GPUImage: "a\nb", GPUTypes: map[string]int64{long: 1, "a\nb": -1}, WaitSeconds: new(int64(-1))}
	for n := range 1000 {
		w.info.Queue.GPUTypes[strings.Repeat("t", n%64)+string(rune('a'+n/64))] = 1
	}
	w.checkIn()
	a := s.get("alice", "/queues").ok()
	if len(a.body) > 4096 || strings.Contains(a.body, `\n`) {
		t.Errorf("%d bytes: %s", len(a.body), a.body)
	}
	q := s.queues("alice")[0]
	if q.MaxTime != 0 || q.Running != 0 || q.Waiting != 1<<40 || *q.ExpectedWait != 0 || len(q.GPUTypes) != 20 || q.DefaultCPUImage != "codalab/default-cpu" {
		t.Errorf("%+v", q)
	}
}

// checked creates a run of alice, as this project's cl does.
func (s *site) checked(queue string, more map[string]any) answer {
	s.t.Helper()
	return s.call("alice", http.MethodPost, "/bundles?check_requests=1&worksheet="+s.home("alice"), runFor(queue, more))
}

func (s *site) bundles(user string) int {
	s.t.Helper()
	list, _ := s.get(user, "/bundles?keywords=.mine").ok().value("data").([]any)
	return len(list)
}

func TestRunThatItsQueueCanNeverRunIsRefusedWithTheNearestRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
	w := s.queue("root", "gpu")
	w.checkIn()
	for _, test := range []struct {
		queue   string
		more    map[string]any
		refusal string
		warning string
	}{
		{"gpu", map[string]any{"request_gpus": 4, "request_time": "2h"}, "", ""},
		{"gpu", map[string]any{"request_gpus": 8}, "Queue gpu has no node for 1 CPU, 8 GPUs, 2g memory. The nearest request that fits: --request-cpus 1 --request-gpus 4 --request-memory 2g.", ""},
		{"tag=gpu", map[string]any{"request_memory": "64g"}, "The nearest request that fits: --request-cpus 1 --request-memory 32g.", ""},
		{"gpu", map[string]any{"request_time": "3h"}, "Queue gpu runs bundles for at most 2h, and this one asks for 3h. The nearest request that fits: --request-cpus 1 --request-memory 2g --request-time 2h.", ""},
		{"gpus", nil, "", "No worker serves queue gpus (queues now served: gpu). Did you mean gpu?"},
		{"", nil, "", "No worker takes bundles that name no queue (queues now served: gpu)."},
		{"gpu", map[string]any{"request_memory": "1m"}, "", "The run fails unless that changes: Requested less memory (1m) than minimum limit (4m) by 3m."},
	} {
		before := s.bundles("alice")
		a := s.checked(test.queue, test.more)
		if test.refusal != "" {
			a.says(http.StatusBadRequest, test.refusal)
			if n := s.bundles("alice"); n != before {
				t.Errorf("%q: a refused run is there", test.refusal)
			}
			continue
		}
		warnings, _ := a.ok().value("meta", "warnings").([]any)
		if got := append(warnings, "")[0]; got != test.warning || len(warnings) > 1 {
			t.Errorf("%s %v: %q, want %q", test.queue, test.more, warnings, test.warning)
		}
	}
	// CodaLab's own cl asks for no check, and gets the bundle: its worker will refuse it.
	too := s.run("x", map[string]any{"request_queue": "gpu", "request_gpus": 8})
	if m := w.told(codalab.MessageRun); m.Bundle.UUID == "" {
		t.Errorf("%+v", m)
	}
	if b := s.bundle("alice", too); b.State.Final() {
		t.Errorf("%+v", b)
	}
	// A copy of a run needs no queue.
	s.call("alice", http.MethodPost, "/bundles?check_requests=1&wait_for_upload=1&worksheet="+s.home("alice"), runFor("gpu", map[string]any{"request_gpus": 8})).ok()
}

func TestQueueThatIsAwayIsShownWithTheTimeOfItsLastCheckIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSiteAt(t, dir, "")
		w := s.queue("root", "gpu")
		w.checkIn()
		seen := time.Now()
		time.Sleep(3 * time.Hour)
		s.loginAgain("alice", "bob", "root")
		away := func(when string) {
			t.Helper()
			list := s.queues("alice")
			if len(list) != 1 || seen.Unix()-list[0].AwaySince > 5 || list[0].AwaySince > seen.Unix() || list[0].Workers != 0 || list[0].Running != 0 || list[0].Sizes[0].GPUs != 4 {
				t.Errorf("%s: %+v", when, list)
			}
		}
		away("after hours")
		sentence := "Queue gpu is away since " + seen.Add(-5*time.Second).UTC().Format("2006-01-02 15:04 UTC") + ", and the bundle waits for it (queues now served: none)."
		a := s.checked("gpu", nil).ok()
		if got := a.text("meta", "warnings", 0); got != sentence {
			t.Errorf("%q, want %q", got, sentence)
		}
		synctest.Wait()
		if got := s.bundle("alice", a.text("data", 0, "id")).StateDetails; got != sentence {
			t.Errorf("%q, want %q", got, sentence)
		}
		if got := s.queues("bob"); len(got) != 1 {
			t.Errorf("%+v", got)
		}
		w.checkIn()
		if list := s.queues("alice"); list[0].AwaySince != 0 {
			t.Errorf("%+v", list)
		}
	})
}

// TestServerThatStartsKnowsTheQueuesThatAreAway: a site may stop its server and its bridge together.
func TestServerThatStartsKnowsTheQueuesThatAreAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	soon := func(c *server.Config) { c.Hold = time.Millisecond }
	stop := s.start(soon)
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok()
	s.queue("root", "gpu").checkIn()
	s.queue("alice", "lab").of("lab").checkIn()
	s.worker("alice", "w", "mine").checkIn()
	stop()
	s.start(soon)
	job := s.run("x", map[string]any{"request_queue": "gpu"})
	status := ""
	testenv.Await(t, "Run has tried the run", func() bool {
		status = s.bundle("alice", job).Metadata.String("staged_status")
		return strings.Contains(status, "ueue gpu")
	}, &status)
	if !strings.HasPrefix(status, "Queue gpu is away since ") {
		t.Errorf("the run waits: %s", status)
	}
	var tags []string
	for _, q := range s.queues("alice") {
		if q.AwaySince == 0 || len(q.Sizes) != 1 {
			t.Errorf("%+v", q)
		}
		tags = append(tags, q.Tag)
	}
	if want := []string{"gpu", "lab"}; !slices.Equal(tags, want) {
		t.Errorf("%q, want %q", tags, want)
	}
}
