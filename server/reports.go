package server

import (
	"context"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// takeReports stores what a worker says of its runs, and returns mark_finalized for those that
// it has ended: also when it says so again, because the answer was lost. What it says of
// bundles that are not its own is passed over.
func (s *Server) takeReports(ctx context.Context, p *poll, runs []codalab.Run) ([]codalab.Message, error) {
	key, now := p.worker.key, s.Now()
	fresh := map[string]codalab.Run{}
	var uuids []string
	news := s.hub.news(key, runs, now)
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
	bundles, err := s.store.ChangeAll(ctx, uuids, func(b *store.Bundle) error {
		before := b.State
		if b.Worker != key || !b.State.OnWorker() || !s.hub.take(p, b.UUID) {
			return nil
		}
		takeResults(b, adopted)
		err := ignoring(report(b, key, fresh[b.UUID], now))
		if before != b.State {
			moved = append(moved, b.UUID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.changed(moved...)
	var messages []codalab.Message
	for _, uuid := range uuids {
		b, ok := bundles[uuid]
		if !ok || b.Worker != key {
			continue
		}
		s.hub.stored(key, fresh[uuid], now)
		if b.State.Final() && fresh[uuid].State == codalab.StateFinalizing {
			messages = append(messages, codalab.Message{Type: codalab.MessageMarkFinalized, UUID: uuid})
		}
	}
	return messages, nil
}

// take says whether a check-in's report of a run that its worker has is the newest. Reports
// are stored one check-in at a time, but not always in the order of arrival.
func (h *hub) take(p *poll, uuid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.order < p.worker.applied[uuid] {
		return false
	}
	p.worker.applied[uuid] = p.order
	return true
}

// reported is what a worker last said of a run, and when that was stored.
type reported struct {
	run codalab.Run
	at  time.Time
}

// news returns those of a worker's reports in which something is new, or whose last was stored
// long ago.
func (h *hub) news(key store.Worker, runs []codalab.Run, now time.Time) []codalab.Run {
	const refresh = 30 * time.Second
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.get(key)
	var fresh []codalab.Run
	for _, run := range runs {
		last, ok := w.reported[run.UUID]
		if !ok || now.Sub(last.at) > refresh || run.State == codalab.StateFinalizing || !sameReport(last.run, run) {
			fresh = append(fresh, run)
		}
	}
	return fresh
}

// stored notes that a report is in the store.
func (h *hub) stored(key store.Worker, run codalab.Run, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.get(key); h.holders[run.UUID] == w {
		w.reported[run.UUID] = reported{run, now}
	}
}

// sameReport compares what a person would notice; times and usage are stored now and then.
func sameReport(a, b codalab.Run) bool {
	return a.State == b.State && a.RunStatus == b.RunStatus && a.Remote == b.Remote &&
		a.DiskUtilization == b.DiskUtilization &&
		(a.DockerImage == nil) == (b.DockerImage == nil) && len(a.Profile) == len(b.Profile)
}
