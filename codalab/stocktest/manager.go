package stocktest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// managerPass passes over all bundles once (codalab/server/bundle_manager.py: _run_iteration).
// It takes a second and a bit for each message that no worker takes.
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

// stage stages the runs whose parents are ready (codalab/server/ bundle_manager.py:
// _stage_bundles).
func (s *Server) stage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.in(codalab.StateCreated) {
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

// parents returns why a run can never be staged, or else whether it has to wait for a parent.
func (s *Server) parents(b *bundle) (failure string, wait bool) {
	var missing, failed, killed []string
	for _, d := range b.dependencies {
		parent := s.bundle(d.ParentUUID)
		switch {
		case parent == nil:
			missing = append(missing, d.ParentUUID)
		case parent.state == codalab.StateFailed:
			failed = append(failed, parent.uuid)
		case parent.state == codalab.StateKilled:
			killed = append(killed, parent.uuid)
		case parent.state != codalab.StateReady:
			wait = true
		}
		if parent != nil {
			if _, err := s.allowed(s.users[b.owner], parent.uuid, mayRead); err != nil {
				return err.Error(), false
			}
		}
	}
	if missing != nil {
		return "Missing parent bundles: " + strings.Join(missing, ", "), false
	}
	if b.metadata.Bool("allow_failed_dependencies") {
		return "", wait
	}
	if failed != nil {
		failure += "Parent bundles failed: " + strings.Join(failed, ", ") + " "
	}
	if killed != nil {
		failure += "Parent bundles were killed: " + strings.Join(killed, ", ") + " "
	}
	if failure != "" {
		failure += "(Please use the --allow-failed-dependencies flag to depend on results of failed or killed bundles) "
	}
	return failure, wait
}

// forgetSilent forgets the workers that have not checked in for long; the caller holds the
// lock (_cleanup_dead_workers).
func (s *Server) forgetSilent() {
	for _, w := range slices.Clone(s.workers) {
		if time.Since(w.checkIn) > s.o.WorkerTimeout {
			s.forget(w)
		}
	}
}

// restageStuck stages the runs again that no worker has started; the caller holds the lock
// (_restage_stuck_starting_bundles).
func (s *Server) restageStuck(claimed map[string]*workerRow) {
	for _, b := range s.in(codalab.StateStarting) {
		if claimed[b.uuid] == nil || silence(b) > 5*time.Minute {
			s.restage(b)
		}
	}
}

// giveUp makes the runs worker_offline that have no worker, or of which no worker has reported
// for long; the caller holds the lock (_bring_offline_stuck_running_bundles).
func (s *Server) giveUp(claimed map[string]*workerRow) {
	for _, b := range slices.Concat(s.in(codalab.StateRunning), s.in(codalab.StatePreparing)) {
		if claimed[b.uuid] == nil || silence(b) > s.o.WorkerTimeout {
			s.offline(b)
		}
	}
}

// silence is the time since the last report of a run.
func silence(b *bundle) time.Duration { return time.Since(b.metadata.Time("last_updated")) }

// acknowledge tells workers that their runs are over (_acknowledge_recently_finished_bundles).
func (s *Server) acknowledge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.in(codalab.StateFinalizing) {
		w, known := s.runs[b.uuid], maps.Clone(b.metadata)
		if w == nil {
			s.offline(b)
			continue
		}
		s.mu.Unlock()
		told := s.tell(w.socket, map[string]any{"type": codalab.MessageMarkFinalized, "uuid": b.uuid}, managerPatience)
		s.mu.Lock()
		if told {
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
	for _, b := range s.in(codalab.StateStaged) {
		s.forgetSilent()
		asks := asksOf(b)
		if asks.memory < leastMemory {
			b.state = codalab.StateFailed
			b.set(codalab.Metadata{"failure_message": fmt.Sprintf("Requested less memory (%s) than minimum limit (%s) by %s",
				codalab.FormatSize(asks.memory), codalab.FormatSize(leastMemory), codalab.FormatSize(leastMemory-asks.memory))})
			continue
		}
		candidates := s.candidates(b.owner, offers)
		if !slices.ContainsFunc(candidates, func(o *offer) bool { return o.fits(asks) }) {
			b.set(codalab.Metadata{"staged_status": noFit(asks, candidates)})
		}
		for _, o := range candidates {
			if !o.fits(asks) || !s.tryStart(b, o.row) {
				continue
			}
			o.take(asks)
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
		g := s.groups[w.group]
		own := w.key.user == owner || (g != nil && g.has(owner))
		if o := offers[w]; o != nil && (own || s.users[w.key.user].root()) {
			list = append(list, o)
		}
	}
	return list
}

// tryStart offers a run to a worker, and takes the run back when the worker does not listen
// (_try_start_bundle).
func (s *Server) tryStart(b *bundle, w *workerRow) bool {
	if b.state != codalab.StateStaged || w.IsTerminating || s.permission(s.users[w.key.user], b) < mayAll {
		return false
	}
	s.starting(b, w)
	message := runMessage(b)
	s.mu.Unlock()
	told := s.tell(w.socket, message, managerPatience)
	s.mu.Lock()
	if !told {
		s.restage(b)
	}
	return told
}
