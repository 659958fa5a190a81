package server

import (
	"context"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// applyReports stores a worker's reports, and returns a mark_finalized message for each run
// that the worker has ended. A worker that did not get the message reports the end again, and
// gets it again. Reports of other workers' bundles are ignored.
func (s *Server) applyReports(ctx context.Context, p *poll, runs []codalab.Run) ([]codalab.Message, error) {
	key, now := p.worker.key, s.Now()
	fresh := map[string]codalab.Run{}
	var uuids []string
	news := s.hub.newReports(key, runs, now)
	for _, run := range news {
		fresh[run.UUID] = run
	}
	adopted, err := s.adopt(ctx, key, fresh)
	if err != nil {
		return nil, err
	}
	for _, run := range news {
		if _, ok := fresh[run.UUID]; ok {
			uuids = append(uuids, run.UUID)
		}
	}
	if len(uuids) == 0 {
		return nil, nil
	}
	var moved []string
	bundles, err := s.Store.ChangeAll(ctx, uuids, func(b *store.Bundle) error {
		before := b.State
		if plan.Worker(b.Worker) != key || !b.State.OnWorker() || !s.hub.acceptReport(p, b.UUID) {
			return nil
		}
		next := planned(*b)
		if size, ok := adopted[b.ResultsName()]; ok {
			next = next.Adopt(b.ResultsName(), size)
		}
		become(b, next.Report(fresh[b.UUID], now, p.charged))
		if before != b.State {
			moved = append(moved, b.UUID)
		}
		return nil
	})
	s.changed(moved...) // after an error too: ChangeAll may have changed some
	if err == nil {
		err = s.enforceQuotas(ctx, bundles)
	}
	if err != nil {
		return nil, err
	}
	var messages []codalab.Message
	for _, uuid := range uuids {
		b, ok := bundles[uuid]
		if !ok || plan.Worker(b.Worker) != key {
			continue
		}
		s.hub.reportStored(key, fresh[uuid], now)
		if b.State.Final() && fresh[uuid].State == codalab.StateFinalizing {
			messages = append(messages, codalab.Message{Type: codalab.MessageMarkFinalized, UUID: uuid})
		}
	}
	return messages, nil
}

// acceptReport returns false if the report of a later check-in was applied before; else it
// records this one. Check-ins are applied one after the other, but not always in the order of
// their arrival.
func (h *hub) acceptReport(p *poll, uuid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.order < p.worker.applied[uuid] {
		return false
	}
	p.worker.applied[uuid] = p.order
	return true
}

// reported is the last stored report of a run, and when it was stored.
type reported struct {
	run codalab.Run
	at  time.Time
}

// newReports returns the reports to store: those that differ from the last one or announce an
// end, and those of runs of which none was stored for a while. It drops reports of runs that the
// worker does not have, so that a check-in cannot keep the database busy with any number of them. But
// the end of such a run may be one that the worker does not know to be acknowledged.
func (h *hub) newReports(key plan.Worker, runs []codalab.Run, now time.Time) []codalab.Run {
	const (
		refresh  = 30 * time.Second
		mostEnds = 200 // of runs that the worker does not have, in one check-in
	)
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.worker(key)
	var fresh []codalab.Run
	ends := 0
	for _, run := range runs {
		if h.holders[run.UUID] != w {
			if ends++; run.State != codalab.StateFinalizing || ends > mostEnds {
				continue
			}
		}
		last, ok := w.reported[run.UUID]
		if !ok || now.Sub(last.at) > refresh || run.State == codalab.StateFinalizing || !plan.SameReport(last.run, run) {
			fresh = append(fresh, run)
		}
	}
	return fresh
}

// reportStored records that a report was stored.
func (h *hub) reportStored(key plan.Worker, run codalab.Run, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.worker(key); h.holders[run.UUID] == w {
		w.reported[run.UUID] = reported{run, now}
	}
}
