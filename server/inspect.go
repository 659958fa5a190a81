package server

import (
	"context"
	"time"

	"github.com/cl-slurm/cl-slurm/server/plan"
)

// inspect finds the bundles of which nothing has been heard for too long. Run calls it at each pass.
func (s *Server) inspect(ctx context.Context, now time.Time) {
	s.changeAll(ctx, "stage unclaimed bundles again", s.hub.overdue(now), plan.Bundle.Unclaim)
	s.changeAll(ctx, "take bundles offline", s.hub.lost(now), func(b plan.Bundle) plan.Bundle { return b.GoOffline(now) })
	if now.Sub(s.oldFailed) < time.Hour {
		return
	}
	s.oldFailed = now
	stuck, err := s.Store.CreatedBefore(ctx, now.Add(-plan.StuckAfter), plan.Expiring()...)
	s.logError(ctx, "list old bundles", err)
	s.changeAll(ctx, "fail old bundles", stuck, func(b plan.Bundle) plan.Bundle { return b.Expire(now) })
}

// changeAll changes bundles by a transition, and tells Run.
func (s *Server) changeAll(ctx context.Context, doing string, uuids []string, next func(plan.Bundle) plan.Bundle) {
	if len(uuids) == 0 {
		return
	}
	_, err := s.transitions(ctx, uuids, next)
	s.logError(ctx, doing, err)
	s.changed(uuids...)
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
