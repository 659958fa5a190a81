package checkin

import (
	"context"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// applyReports stores a worker's reports, and returns a mark_finalized message for each run
// that the worker has ended. A worker that did not get the message reports the end again, and
// gets it again. Reports of other workers' bundles are ignored. If the runs are charged, their time counts
// against their owners' quotas.
func (s *CheckIns) applyReports(ctx context.Context, c *hub.CheckIn, reports []codalab.RunReport, charged bool) ([]codalab.Message, error) {
	key, now := c.Worker(), s.config.Now()
	if err := s.config.Usage.Note(ctx, c.OwnReports(reports), now); err != nil {
		return nil, err
	}
	fresh := c.ReportsToStore(reports, now)
	byRun := map[string]codalab.RunReport{}
	var uuids []string
	for _, report := range fresh {
		byRun[report.UUID] = report
	}
	taken, err := s.takeResults(ctx, key, byRun)
	if err != nil {
		return nil, err
	}
	for _, report := range fresh {
		if _, ok := byRun[report.UUID]; ok {
			uuids = append(uuids, report.UUID)
		}
	}
	if len(uuids) == 0 {
		return nil, nil
	}
	var moved []string
	saved := map[string]bool{}
	bundles, err := s.config.Store.ChangeAll(ctx, uuids, func(b *store.Bundle) error {
		before := b.State
		if plan.Worker(b.Worker) != key || !b.State.OnWorker() || !c.AcceptReport(b.UUID) {
			return nil
		}
		next := stored.Plan(*b)
		if extent, ok := taken[b.LocationName()]; ok {
			next = next.TakeResults(b.LocationName(), extent)
		}
		next = next.ApplyReport(byRun[b.UUID], now, charged)
		b.Usage = s.config.Usage.ToSave(b.UUID, now, next.State.Final())
		saved[b.UUID] = b.Usage != ""
		become(b, next, now)
		if before != b.State {
			moved = append(moved, b.UUID)
		}
		return nil
	})
	s.config.Changed(moved...) // after an error too: ChangeAll may have changed some
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
		if s.noteStored(c, b, byRun[uuid], saved[uuid], now) {
			messages = append(messages, codalab.Message{Type: codalab.MessageMarkFinalized, UUID: uuid})
		}
	}
	return messages, nil
}

// become gives a bundle what a report has changed.
func become(b *store.Bundle, next plan.Bundle, now time.Time) {
	if next.State.Final() {
		stored.Become(b, next) // the end is the run's own, and its metadata tells it
	} else {
		stored.BecomeOfItself(b, next, now)
	}
}

// noteStored notes that a report is in the store, with the run's series if that was written, and returns whether the report
// tells of an end that has to be acknowledged.
func (s *CheckIns) noteStored(c *hub.CheckIn, b store.Bundle, report codalab.RunReport, series bool, now time.Time) bool {
	c.NoteStored(report, now)
	if series || b.State.Final() {
		s.config.Usage.Saved(b.UUID, now, b.State.Final())
	}
	return b.State.Final() && report.State == codalab.StateFinalizing
}
