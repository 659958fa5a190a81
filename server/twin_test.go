package server_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Two bridges of one name would take each other's messages. CodaLab's own worker does not name its
// instance.
func TestWorkerIDBelongsToOneInstanceAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		of := func(instance string) *testWorker {
			w := s.worker("alice", "site-cpu", "cpu")
			w.info.Instance, w.info.Hostname = instance, "login of "+instance
			return w
		}
		checkIn := func(instance string, runs ...codalab.RunReport) answer {
			w := of(instance)
			in := w.info
			in.Reports = runs
			return w.call(w.user, http.MethodPost, "/workers/site-cpu/checkin", in)
		}
		const refusal = "Worker 'site-cpu' is in use by another program, on login of 9f02ab. Stop that one, or give one of them another name; its id is free 1m after its last check-in."
		uuid := s.run("x", cpuQueue)
		first := of("9f02ab")
		first.takes()

		checkIn("b1b2b3", reportOf(uuid, codalab.StateReady)).says(http.StatusConflict, refusal)
		checkIn("").says(http.StatusConflict, refusal)
		if b := s.bundle("alice", uuid); b.State != codalab.StatePreparing {
			t.Errorf("the twin's report made the bundle %s", b.State)
		}
		first.checkIn(reportOf(uuid, codalab.StateRunning)) // the instance itself may restart, and check in twice
		if b := s.bundle("alice", uuid); b.State != codalab.StateRunning {
			t.Errorf("the bundle is %s", b.State)
		}
		bob := s.worker("bob", "site-cpu", "cpu")
		bob.info.Instance = "b1b2b3"
		bob.checkIn() // another user's worker of this id is another worker

		time.Sleep(50 * time.Second)
		checkIn("b1b2b3").says(http.StatusConflict, refusal)
		time.Sleep(11 * time.Second)
		checkIn("b1b2b3").ok()
		checkIn("9f02ab").is(http.StatusConflict)
	})
}

func TestWorkersThatNameNoInstanceShareAnIDAsBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		stock := s.worker("alice", "w", "cpu")
		stock.checkIn()
		stock.checkIn()
		named := s.worker("alice", "w", "cpu") // a bridge that was just upgraded
		named.info.Instance = "9f02ab"
		named.checkIn()
	})
}

// The next worker of the id begins anew. A worker that left runs behind comes back as the same instance.
func TestWorkerThatEndsWithoutRunsGivesItsIDAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		checkIn := func(instance string, ending bool) answer {
			w := s.worker("alice", "w", "cpu")
			w.info.Instance, w.info.IsTerminating = instance, ending
			return w.call(w.user, http.MethodPost, "/workers/w/checkin", w.info)
		}
		checkIn("9f02ab", false).ok()
		checkIn("b1b2b3", false).is(http.StatusConflict)
		began := time.Now()
		checkIn("9f02ab", true).ok()
		if took := time.Since(began); took > time.Second {
			t.Errorf("a worker that ends waits %s for its answer", took)
		}
		checkIn("b1b2b3", false).ok()

		uuid := s.run("x", cpuQueue)
		w := s.worker("alice", "w", "cpu")
		w.info.Instance = "b1b2b3"
		w.takes()
		w.info.IsTerminating = true
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		checkIn("c1c2c3", false).is(http.StatusConflict)
	})
}
