package server_test

import (
	"math"
	"net/http"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// energy tells the energy of a run.
func (w *testWorker) energy(uuid string, joules int64) answer {
	return w.call(w.user, http.MethodPost, "/workers/"+w.id+"/energy", codalab.EnergyReport{Runs: []codalab.RunEnergy{{UUID: uuid, Joules: joules}}})
}

// cost returns the cost of a run as the server shows it.
func (s *site) cost(uuid string) codalab.Cost {
	s.t.Helper()
	b, err := s.store.Bundle(s.t.Context(), uuid)
	if err != nil || b.Cost == nil {
		s.t.Fatalf("%v, cost %v", err, b.Cost)
	}
	return *b.Cost
}

// The accounting database knows the energy of a job after its end, when the run has its verdict.
func TestEnergyIsNotedAfterTheEndAndStaysThroughReports(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	report := func(state codalab.State) {
		run := reportOf(uuid, state)
		run.Cost = &codalab.Cost{AllocatedSeconds: 60, Attempts: 2}
		w.checkIn(run)
	}
	report(codalab.StateRunning)
	w.energy(uuid, 1000).ok() // of the first attempt
	report(codalab.StateRunning)
	if got := s.cost(uuid); got.EnergyJoules != 1000 {
		t.Errorf("after a report: %+v", got)
	}
	report(codalab.StateFinalizing)
	ended := s.bundle("alice", uuid)
	w.energy(uuid, 2500).ok()
	w.energy(uuid, 2500).ok() // its answer may be lost
	if got := s.cost(uuid); got.EnergyJoules != 2500 || got.AllocatedSeconds != 60 || got.Attempts != 2 {
		t.Errorf("after the end: %+v", got)
	}
	if after := s.bundle("alice", uuid); after.State != ended.State || after.Metadata.String("run_status") != ended.Metadata.String("run_status") {
		t.Errorf("the end has changed: %+v", after)
	}
}

func TestEnergyIsTakenFromTheRunsWorkerAlone(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	w.energy(uuid, 5).ok() // it has reported no cost
	run := reportOf(uuid, codalab.StateRunning)
	run.Cost = &codalab.Cost{Attempts: 1}
	w.checkIn(run)
	for _, other := range []*testWorker{s.worker("bob", "w", "cpu"), s.worker("alice", "other", "cpu")} {
		other.energy(uuid, 7).ok()
	}
	if got := s.cost(uuid); got.EnergyJoules != 0 {
		t.Errorf("%+v", got)
	}
	for told, want := range map[int64]int64{-1: 0, math.MaxInt64: 1 << 50} {
		w.energy(uuid, told).ok()
		if got := s.cost(uuid); got.EnergyJoules != want {
			t.Errorf("told %d: %+v", told, got)
		}
	}
	w.energy("0x1", 7).ok()
	s.call("alice", http.MethodPost, "/workers/w/energy", "x").is(http.StatusBadRequest)
	s.call("alice", http.MethodPost, "/workers/w/energy", codalab.EnergyReport{Runs: make([]codalab.RunEnergy, 1001)}).
		says(http.StatusRequestEntityTooLarge, "A worker may tell the energy of 1000 runs at once")
}
