package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestRunsThatRequestTooMuchFail(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) {
		c.Site.MaxDisk, c.Site.MaxMemory, c.Site.MaxTime = 2<<30, 8<<30, 2*time.Hour
	})
	s.setQuota(2<<30, 3600)
	for request, want := range map[[2]string]string{
		{"request_disk", "2049m"}: "Requested more disk (2.0g) than user disk quota left (2g) by 1m",
		{"request_time", "90m"}:   "Requested more time (1h30m) than user time quota left (1h0m) by 30m0s",
		{"request_memory", "9g"}:  "Requested more memory (9g) than maximum limit (8g) by 1g",
		{"request_memory", "1m"}:  "Requested less memory (1m) than minimum limit (4m) by 3m",
	} {
		uuid := s.run("x", map[string]any{"request_queue": "cpu", request[0]: request[1]})
		child := s.run("y", cpuQueue, codalab.Dependency{ParentUUID: uuid, ChildPath: "in"})
		if b := s.await(uuid, codalab.StateFailed, codalab.StateReady); b.Metadata.String("failure_message") != want {
			t.Errorf("%v: %v", request, b.Metadata)
		}
		s.await(child, codalab.StateFailed)
	}
	s.run("x", cpuQueue)
	m := s.worker("alice", "w", "cpu").told(codalab.MessageRun)
	if m.Resources.Disk != 2<<30-1 || m.Resources.Time != 3599 {
		t.Errorf("a run that requests nothing gets %+v", m.Resources)
	}
}

func TestTimeOnTheSitesWorkersCountsOnce(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"root", "alice", "machine"} {
		s := newSite(t, func(c *server.Config) { c.Hold = 20 * time.Millisecond })
		s.account("machine", store.Scope{})
		w, uuid := s.worker(owner, "w", "cpu"), s.run("x", cpuQueue)
		w.takes()
		run := reportOf(uuid, codalab.StateRunning)
		for i, total := range []float64{1.6, 2.7, 2.7, 4.2} {
			run.ContainerTimeTotal, run.RunStatus = total, strings.Repeat("x", i)
			s.call(owner, http.MethodPost, "/workers/w/checkin", checkInOf(w, run)).ok()
		}
		run.State = codalab.StateFinalizing
		w.told(codalab.MessageMarkFinalized, run)
		used := s.get("alice", "/user").ok().value("data", "attributes", "time_used")
		if want := map[string]float64{"root": 4, "alice": 0, "machine": 4}[owner]; used != want {
			t.Errorf("on a worker of %s: %v seconds used", owner, used)
		}
		if used := s.get("root", "/users/machine").ok().value("data", "attributes", "time_used"); used != 0.0 {
			t.Errorf("the worker account has used %v seconds", used)
		}
	}
}

// checkInOf is a worker's check-in with a run.
func checkInOf(w *testWorker, run codalab.RunReport) codalab.CheckIn {
	in := w.info
	in.Reports = []codalab.RunReport{run}
	return in
}

func TestUsedUpQuotaKillsRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, owner string
		disk        int64
		time        float64
	}{{"disk", "root", 2 << 20, 0}, {"time", "root", 0, 120}, {"disk", "machine", 2 << 20, 0}, {"time", "machine", 0, 120}} {
		s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
		s.account("machine", store.Scope{})
		s.setQuota(1<<20, 60)
		w, uuid := s.worker(test.owner, "w", "cpu"), s.run("x", cpuQueue)
		w.takes()
		run := reportOf(uuid, codalab.StateRunning)
		run.DiskUtilization, run.ContainerTimeTotal = test.disk, test.time
		m := w.told(codalab.MessageKill, run)
		if want := "Kill requested: User " + test.name + " quota exceeded. To apply for more quota,"; !strings.HasPrefix(m.KillMessage, want) {
			t.Errorf("%s: killed with %q", test.name, m.KillMessage)
		}
		run.State, run.FailureMessage = codalab.StateFinalizing, &m.KillMessage
		w.told(codalab.MessageMarkFinalized, run)
		s.await(uuid, codalab.StateKilled)
	}
}
