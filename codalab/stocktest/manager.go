package stocktest

import (
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// managerPass is one pass over all bundles (codalab/server/bundle_manager.py: _run_iteration).
// It takes more than a second for each message that no worker takes.
func (s *Server) managerPass() {
	s.stage()
	s.mu.Lock()
	s.forgetSilent()
	// The run rows are looked up once a pass.
	claimed := maps.Clone(s.runs)
	s.restageStuck(claimed)
	s.giveUp(claimed)
	s.mu.Unlock()
	s.acknowledge()
	s.schedule()
}

// stage stages the runs that have all parents ready (codalab/server/bundle_manager.py:
// _stage_bundles).
func (s *Server) stage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.runsIn(codalab.StateCreated) {
		failure, wait := s.parents(b)
		switch {
		case failure != "":
			b.state = codalab.StateFailed
			b.set(codalab.Metadata{"failure_message": failure})
		case !wait:
			b.state = codalab.StateStaged
			b.set(codalab.Metadata{"staged_status": waitingForWorker})
		}
	}
}

// parents returns the reason why a run can never be staged, or whether it has to wait for a
// parent.
func (s *Server) parents(b *bundle) (failure string, wait bool) {
	for _, d := range b.dependencies {
		parent := s.bundle(d.ParentUUID)
		switch {
		case parent == nil:
			return "Missing parent bundles: " + d.ParentUUID, false
		case !parent.state.Final():
			wait = true
		case parent.state != codalab.StateReady && !b.metadata.Bool("allow_failed_dependencies"):
			return "Parent bundles failed: " + parent.uuid + " (Please use the --allow-failed-dependencies flag to depend on results of failed or killed bundles) ", false
		}
	}
	return "", wait
}

// forgetSilent removes the workers without a check-in for workerTimeout; the caller holds the
// lock (_cleanup_dead_workers).
func (s *Server) forgetSilent() {
	for _, w := range slices.Clone(s.workers) {
		if time.Since(w.checkIn) > workerTimeout {
			s.forget(w)
		}
	}
}

// restageStuck stages the runs again that no worker has started; the caller holds the lock
// (_restage_stuck_starting_bundles).
func (s *Server) restageStuck(claimed map[string]*workerRow) {
	for _, b := range s.runsIn(codalab.StateStarting) {
		if claimed[b.uuid] == nil || silence(b) > 5*time.Minute {
			s.restage(b)
		}
	}
}

// giveUp makes the runs worker_offline that have no worker, or of which no worker has reported
// for long; the caller holds the lock (_bring_offline_stuck_running_bundles).
func (s *Server) giveUp(claimed map[string]*workerRow) {
	for _, b := range slices.Concat(s.runsIn(codalab.StateRunning), s.runsIn(codalab.StatePreparing)) {
		if claimed[b.uuid] == nil || silence(b) > workerTimeout {
			s.offline(b)
		}
	}
}

// silence is the time since the last report of a run.
func silence(b *bundle) time.Duration { return time.Since(b.metadata.Time("last_updated")) }

// acknowledge acknowledges the ends of runs to their workers
// (_acknowledge_recently_finished_bundles).
func (s *Server) acknowledge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.runsIn(codalab.StateFinalizing) {
		w, known := s.runs[b.uuid], maps.Clone(b.metadata)
		if w == nil {
			s.offline(b)
			continue
		}
		s.mu.Unlock()
		delivered := s.send(w.socket, map[string]any{"type": codalab.MessageMarkFinalized, "uuid": b.uuid}, managerTimeout)
		s.mu.Lock()
		if delivered {
			s.finished(b, known)
		}
	}
}

// schedule offers the staged runs to workers (_schedule_run_bundles_on_workers).
func (s *Server) schedule() {
	s.mu.Lock()
	defer s.mu.Unlock()
	offers := map[*workerRow]*offer{}
	for _, w := range s.workers {
		offers[w] = s.offerOf(w)
	}
	for _, b := range s.runsIn(codalab.StateStaged) {
		s.forgetSilent()
		requests := requestsOf(b)
		candidates := s.candidates(b.owner, offers)
		if !slices.ContainsFunc(candidates, func(o *offer) bool { return o.fits(requests) }) {
			b.set(codalab.Metadata{"staged_status": "No worker can meet your bundle's resource requirements. "})
		}
		for _, o := range candidates {
			if !o.fits(requests) || !s.tryStart(b, o.row) {
				continue
			}
			o.deduct(requests)
			o.runsLeft--
			break
		}
	}
}

// candidates are the workers that an owner's runs may go to: the owner's own, those of the
// owner's groups, and the root user's.
func (s *Server) candidates(owner string, offers map[*workerRow]*offer) []*offer {
	var list []*offer
	for _, w := range s.workers {
		if o := offers[w]; o != nil && (w.key.user == owner || s.users[w.key.user].root()) {
			list = append(list, o)
		}
	}
	return list
}

// tryStart offers a run to a worker, and stages the run again if the worker does not take the
// message (_try_start_bundle).
func (s *Server) tryStart(b *bundle, w *workerRow) bool {
	if b.state != codalab.StateStaged || w.IsTerminating {
		return false
	}
	s.starting(b, w)
	message := runMessage(b)
	s.mu.Unlock()
	delivered := s.send(w.socket, message, managerTimeout)
	s.mu.Lock()
	if !delivered {
		s.restage(b)
	}
	return delivered
}
