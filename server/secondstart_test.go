package server_test

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// begins is a start of the worker w with its first token, as another program.
func (s *site) begins(first, instance string) *testWorker {
	s.t.Helper()
	role := instance + " of " + first
	s.tokens[role] = s.tokens[first]
	s.renewWorkerToken(role)
	w := s.worker(role, "w", "cpu")
	w.info.Instance, w.info.Hostname, w.info.Preemptible = instance, "node of "+instance, true
	return w
}

// mayDoNothing checks that a program of a worker can change nothing of a bundle, nor come back.
func (w *testWorker) mayDoNothing(uuid string) {
	w.t.Helper()
	const refusal = "Worker 'w' has begun again elsewhere with the same token: this program has to end."
	in := w.info
	in.Reports = []codalab.RunReport{reportOf(uuid, codalab.StateReady)}
	for path, body := range map[string]any{
		"/checkin": in, "/start_bundle/" + uuid: codalab.StartBundle{Hostname: "old"}, "/token": codalab.WorkerTokenRequest{}, "/reply/1": nil,
		"/energy": codalab.EnergyReport{Runs: []codalab.RunEnergy{{UUID: uuid, Joules: 1}}},
	} {
		w.call(w.user, http.MethodPost, "/workers/w"+path, body).says(http.StatusGone, refusal)
	}
	w.call(w.user, http.MethodPut, "/bundles/"+uuid+"/contents/blob/?filename=x&unpack=0&finalize_on_success=0", "old").says(http.StatusGone, refusal)
	w.get(w.user, "/bundles/"+uuid+"/contents/blob/").says(http.StatusGone, refusal)
}

// A batch system starts a job again whose node is lost, and the worker in it begins anew with the same token.
func TestSecondStartWithTheSameTokenReplacesTheFirstAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		token := s.addWorkerToken("alice", "w")
		first := s.begins(token, "a1")
		uuid := s.run("x", cpuQueue)
		first.takes()
		first.checkIn(reportOf(uuid, codalab.StateRunning))
		began := time.Now()

		second := s.begins(token, "b2")
		first.mayDoNothing(uuid) // before the second one has checked in
		second.checkIn()
		first.mayDoNothing(uuid)
		if got := second.takes(); got != uuid {
			t.Errorf("the second one is given %s, want %s", got, uuid)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the run begins again after %s", took)
		}
		first.mayDoNothing(uuid)
		second.checkIn(reportOf(uuid, codalab.StateRunning))
		s.call(second.user, http.MethodPut, "/bundles/"+uuid+"/contents/blob/?filename=x&unpack=0&finalize_on_success=0", "new").ok()
		if a := s.get("alice", "/bundles/"+uuid+"/contents/info/"); a.status >= http.StatusInternalServerError {
			t.Errorf("%d %s", a.status, a.body)
		}

		third := s.begins(token, "c3")
		second.mayDoNothing(uuid)
		s.call(first.user, http.MethodPost, "/workers/w/checkin", first.info).is(http.StatusUnauthorized) // it is long over
		third.checkIn()
	})
}

func TestWorkerThatRestartsInItsDirectoryKeepsItsRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		token := s.addWorkerToken("alice", "w")
		first := s.begins(token, "a1")
		uuid := s.run("x", cpuQueue)
		first.takes()
		first.checkIn(reportOf(uuid, codalab.StateRunning))
		for _, instance := range []string{"a1", "b2"} { // the second one finds the runs of another instance, and reports them
			again := s.begins(token, instance)
			for range 20 {
				again.checkIn(reportOf(uuid, codalab.StateRunning))
				time.Sleep(time.Second)
			}
			if b := s.bundle("alice", uuid); b.State != codalab.StateRunning || len(b.Metadata.Strings("remote_history")) != 1 {
				t.Errorf("%s: the run is %s: %v", instance, b.State, b.Metadata)
			}
		}
	})
}

// Results that are on their way when a worker loses its run must not become those of the run's next start, even if that
// is on a worker of the same id.
func TestResultsOfALostStartAreNotThoseOfTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		token := s.addWorkerToken("alice", "w")
		first := s.begins(token, "a1")
		uuid := s.run("x", cpuQueue)
		first.takes()
		first.checkIn(reportOf(uuid, codalab.StateRunning))
		body, send := io.Pipe()
		got := s.aside(s.request(first.user, http.MethodPut, "/bundles/"+uuid+"/contents/blob/?filename=x&unpack=0&finalize_on_success=0", body))
		_, err := io.WriteString(send, "old")
		must(t, err)

		second := s.begins(token, "b2")
		if again := second.takes(); again != uuid {
			t.Errorf("the second one is given %s", again)
		}
		must(t, send.Close())
		(<-got).says(http.StatusForbidden, "Contents cannot be stored: the worker that sends them has lost bundle "+uuid)
		s.call(second.user, http.MethodPut, "/bundles/"+uuid+"/contents/blob/?filename=x&unpack=0&finalize_on_success=0", "new").ok()
		second.checkIn(reportOf(uuid, codalab.StateFinalizing))
		s.await(uuid, codalab.StateReady)
		if a := s.get("alice", "/bundles/"+uuid+"/contents/blob/").ok(); a.body != "new" {
			t.Errorf("the results are %q", a.body)
		}
	})
}

// A run that is staged again has no worker that reports its end. Wrong results of its lost start must not end it.
func TestWrongResultsOfALostStartDoNotFailTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		first := s.begins(s.addWorkerToken("alice", "w"), "a1")
		uuid := s.run("x", cpuQueue)
		first.takes()
		first.checkIn(reportOf(uuid, codalab.StateRunning))
		body, send := io.Pipe()
		got := s.aside(s.request(first.user, http.MethodPut, "/bundles/"+uuid+"/contents/blob/?filename=x.tar.gz&unpack=1&finalize_on_success=0", body))
		_, err := io.WriteString(send, "no archive")
		must(t, err)
		s.await(uuid, codalab.StateStaged)
		must(t, send.Close())
		(<-got).is(http.StatusBadRequest)
		if b := s.bundle("alice", uuid); b.State != codalab.StateStaged {
			t.Errorf("the run is %s: %v", b.State, b.Metadata)
		}
	})
}

// The server may remember the worker, and the numbers of its starts must go on.
func TestWorkerBeginsAtOnceWithATokenThatReplacesAnEndedOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		for range 3 {
			s.begins(s.addWorkerToken("alice", "w"), "a1").checkIn()
		}
		s.call("alice", http.MethodDelete, "/workers/w/token", nil).is(http.StatusNoContent)
		s.begins(s.addWorkerToken("alice", "w"), "b2").checkIn()
	})
}

// A program that begins again and again leaves few tokens, of the 10,000 that a user may have.
func TestManyStartsLeaveFewTokens(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token := s.addWorkerToken("alice", "w")
	var roles []string
	for range 5 {
		roles = append(roles, s.begins(token, "i"+string(rune('a'+len(roles)))).user)
	}
	valid := slices.DeleteFunc(roles, func(role string) bool { return s.get(role, "/user").status != http.StatusOK })
	if len(valid) != 2 {
		t.Errorf("%q have valid tokens", valid)
	}
}
