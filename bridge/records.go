package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// recordReader reads the records of workers on the shared disk, and their doorbell.
type recordReader struct {
	spool   Spool
	every   time.Duration // the least pause between two readings of one row's usage
	view    *view
	contact *contact
	inbox   *inbox
	now     func() time.Time
}

// watchDoorbell reads the doorbell after each pause until ctx ends. A worker rings at the begin of an attempt, at
// the begin of its command, and at the end of the attempt.
func (w *recordReader) watchDoorbell(ctx context.Context, pause time.Duration, logger *slog.Logger) error {
	return tryEvery(ctx, pause, w.now, w.listen, func(err error) {
		logger.WarnContext(ctx, "cannot answer the doorbell", errorAttr(err))
	})
}

// listen implements Bridge.Listen.
func (w *recordReader) listen(now time.Time) error {
	known := w.contact.observed.Load() && !w.contact.unreachable.Load()
	if !w.view.mayRing(now, known) {
		return nil
	}
	rang, err := w.spool.TakeRings()
	for _, ring := range rang {
		if r, ok := w.view.row(ring.Bundle); ok && r.OnDisk == ring.Attempt {
			w.inbox.put(r.Bundle, w.read(r))
		}
	}
	if err != nil {
		return fmt.Errorf("listen to workers: %w", err)
	}
	return nil
}

// poll reads records in turn until ctx ends.
func (w *recordReader) poll(ctx context.Context) error {
	return every(ctx, time.Second, w.now, w.readTurn)
}

// readTurn implements Bridge.ReadTurn. The records have the attempts' usage; the doorbell, or a snapshot of
// Slurm if a ring is lost, shows the start and the end of an attempt. If the ring for the begin of the command is
// lost, readTurn shows that begin.
func (w *recordReader) readTurn(now time.Time) {
	for _, r := range w.view.nextToRead(now, w.every) {
		news, err := w.tryRead(*r)
		if err != nil && r.UsageUnread { // the row is not reportable before
			w.view.readAgain(r.Bundle, now)
		}
		w.inbox.put(r.Bundle, news)
	}
}

// read reads an attempt's records, and returns the news for its row. If the disk does not give one out, the
// reading fails and proves no absence.
func (w *recordReader) read(r plan.Row) func(*plan.News) {
	news, _ := w.tryRead(r) // the news has the error
	return news
}

// tryRead is read, and returns the error of a reading that failed, too.
func (w *recordReader) tryRead(r plan.Row) (news func(*plan.News), err error) {
	rec := plan.Records{Attempt: r.Attempt.Number, Read: w.now()}
	rec.Records, err = w.spool.ReadRecords(r.Bundle, r.OnDisk)
	return func(n *plan.News) {
		if err != nil {
			rec.Read, n.RecordsFailure = time.Time{}, err.Error()
		}
		n.AddRecords(rec)
	}, err
}
