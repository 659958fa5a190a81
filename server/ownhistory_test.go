package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
)

// own returns what audit lines say that the server did with a bundle by itself, in words.
func (f *auditFile) own(t *testing.T, uuid string) (words []string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range f.lines {
		if line["by_server"] == true && cmp.Equal(line["objects"], []any{uuid}) {
			words = append(words, eventsOf(t, line["did"])...)
		}
	}
	return words
}

func TestKillForAQuotaIsInTheHistoryAndTheAuditFile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		quota string
		disk  int64
		time  float64
	}{{"disk", 2 << 20, 0}, {"time", 0, 120}} {
		file := &auditFile{}
		s := newSite(t, func(c *server.Config) { c.Hold, c.Audit = time.Millisecond, file })
		s.setQuota(1<<20, 60)
		w, uuid := s.worker("root", "w", "cpu"), s.run("x", cpuQueue)
		w.takes()
		run := reportOf(uuid, codalab.StateRunning)
		run.DiskUtilization, run.ContainerTimeTotal = test.disk, test.time
		m := w.told(codalab.MessageKill, run)
		w.checkIn(run) // which does not kill it again
		run.State, run.FailureMessage = codalab.StateFinalizing, &m.KillMessage
		w.told(codalab.MessageMarkFinalized, run)
		did := "by the server, because: User " + test.quota + " quota exceeded."
		if diff := cmp.Diff([]string{"killed " + did}, s.history("alice", uuid)[1:]); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"killed bundle " + uuid + "(job) " + did}, file.own(t, uuid)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestRunOfALostWorkerHasThatInItsHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := &auditFile{}
		s, w, uuid := claimedRun(t, func(c *server.Config) { c.Audit = file })
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		time.Sleep(80 * time.Second)
		s.await(uuid, codalab.StateWorkerOffline)
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		s.await(uuid, codalab.StateRunning)
		w.checkIn(reportOf(uuid, codalab.StateStaged)) // gives it back
		lost := `by the server, because: its worker "w" does not check in; it may come back`
		back := `by the server, because: its worker "w" gave the run back, or is gone`
		if diff := cmp.Diff([]string{"lost " + lost, "restaged " + back}, s.history("alice", uuid)[1:]); diff != "" {
			t.Error(diff)
		}
		want := []string{"lost bundle " + uuid + "(job) " + lost, "restaged bundle " + uuid + "(job) " + back}
		if diff := cmp.Diff(want, file.own(t, uuid)); diff != "" {
			t.Error(diff)
		}
	})
}

// How a run itself ended is in its metadata; its history has what others did with it.
func TestBundleThatTheServerFailsHasTheReasonInItsHistory(t *testing.T) {
	t.Parallel()
	s, w, failing := claimedRun(t)
	child := s.run("y", cpuQueue, codalab.Dependency{ParentUUID: failing, ChildPath: "in"})
	one, end := 1, reportOf(failing, codalab.StateFinalizing)
	end.ExitCode = &one
	w.told(codalab.MessageMarkFinalized, end)
	s.await(child, codalab.StateFailed)
	want := "failed by the server, because: Parent bundles failed: " + failing + " (Please use the --allow-failed-dependencies"
	if got := s.history("alice", child)[1:]; len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := s.history("alice", failing)[1:]; len(got) != 0 {
		t.Errorf("%q", got)
	}
}
