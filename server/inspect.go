package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// stuckAfter is the age at which the server fails a bundle that waits for its contents, for a worker,
// or for its worker to come back (codalab/server/bundle_manager.py: BUNDLE_TIMEOUT_DAYS). CodaLab's
// own server fails a running bundle of that age too, even if its worker reports it.
const stuckAfter = 60 * 24 * time.Hour

// inspect finds the bundles of which nothing has been heard for too long. Run calls it at each pass.
func (s *Server) inspect(ctx context.Context, now time.Time) {
	s.setAll(ctx, "stage unclaimed bundles again", s.hub.overdue(now), func(b *store.Bundle) {
		if b.State == codalab.StateStarting {
			unassign(b)
		}
	})
	s.setAll(ctx, "take bundles offline", s.hub.lost(now), func(b *store.Bundle) { goOffline(b, now) })
	if now.Sub(s.oldFailed) < time.Hour {
		return
	}
	s.oldFailed = now
	old := []codalab.State{codalab.StateUploading, codalab.StateStaged, codalab.StateWorkerOffline}
	stuck, err := s.Store.CreatedBefore(ctx, now.Add(-stuckAfter), old...)
	s.logError(ctx, "list old bundles", err)
	s.setAll(ctx, "fail old bundles", stuck, func(b *store.Bundle) {
		if slices.Contains(old, b.State) {
			setFailed(b, fmt.Sprintf("Bundle has been stuck in %s state for more than %d days.", b.State, stuckAfter/(24*time.Hour)))
		}
	})
}

// setAll changes bundles, and tells Run.
func (s *Server) setAll(ctx context.Context, doing string, uuids []string, change func(*store.Bundle)) {
	if len(uuids) == 0 {
		return
	}
	_, err := s.Store.ChangeAll(ctx, uuids, func(b *store.Bundle) error {
		change(b)
		return nil
	})
	s.logError(ctx, doing, err)
	s.changed(uuids...)
}

// goOffline takes a run offline whose worker does not report it. The worker may come back with it,
// but not one that was preemptible: the run is staged again (codalab/model/bundle_model.py:
// transition_bundle_worker_offline).
func goOffline(b *store.Bundle, now time.Time) {
	switch b.State { //nolint:exhaustive // no worker runs a bundle in another state
	case codalab.StatePreparing, codalab.StateRunning, codalab.StateFinalizing:
	default:
		return
	}
	if b.Metadata.Bool("on_preemptible_worker") {
		unassign(b)
		return
	}
	b.State = codalab.StateWorkerOffline
	b.Metadata["last_updated"] = now.Unix()
}

// overdue returns the runs that no worker has claimed within startLimit, or whose worker has gone
// without claiming them.
func (h *hub) overdue(now time.Time) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var uuids []string
	for _, w := range h.workers {
		gone := now.Sub(w.seen) > h.timeout
		for uuid, run := range w.runs {
			if !run.starting.IsZero() && (gone || now.Sub(run.starting) > startLimit) {
				uuids = append(uuids, uuid)
			}
		}
		if gone && len(w.runs) == 0 && len(w.reads) == 0 && w.poll == nil {
			delete(h.workers, w.key)
		}
	}
	return uuids
}

// lost returns the claimed runs that no check-in of their worker has listed within the timeout: the
// worker has gone, or it has lost the run.
func (h *hub) lost(now time.Time) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var uuids []string
	for _, w := range h.workers {
		for uuid, run := range w.runs {
			switch {
			case !run.starting.IsZero():
			case run.seen.IsZero():
				run.seen = now
				w.runs[uuid] = run
			case now.Sub(run.seen) > h.timeout:
				uuids = append(uuids, uuid)
			}
		}
	}
	return uuids
}
