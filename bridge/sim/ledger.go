package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// ledgerDisk is the site's ledger, for all lives of the bridge. It stores rows in the form in which a real
// ledger stores them.
type ledgerDisk struct {
	contents
	w    *world
	open func() (bridge.Ledger, error) // opens a real ledger that has to agree with this one; nil for none
	// backup is a copy from the time backedUp.
	backup   contents
	backedUp time.Duration
	restored bool
	// restoredAt is the time at which the backup replaced the contents.
	restoredAt time.Duration
	// unknown has the bundles, by command, of which the restored ledger has no rows, or old ones.
	unknown map[string]bool
}

// contents is the data on a ledger's disk.
type contents struct {
	rows       map[string]*plan.Row // the rows never change
	shared     map[plan.SubmissionName]plan.Submission
	over       map[plan.SubmissionName]plan.Submission // those that it has removed
	generation int64
	writer     int // the last life that took the ledger
}

func emptyContents() contents {
	return contents{rows: map[string]*plan.Row{}, shared: map[plan.SubmissionName]plan.Submission{}, over: map[plan.SubmissionName]plan.Submission{}}
}

func (c contents) clone() contents {
	c.rows, c.shared = maps.Clone(c.rows), maps.Clone(c.shared)
	return c
}

// row returns a bundle's row, and whether there is one.
func (c contents) row(bundle string) (plan.Row, bool) {
	if r := c.rows[bundle]; r != nil {
		return *r, true
	}
	return plan.Row{}, false
}

// anyInFlight reports whether some row may have a job in Slurm.
func (c contents) anyInFlight() bool {
	for _, r := range c.rows {
		if r.InFlight() {
			return true
		}
	}
	return false
}

// conflicts reports whether a life of the bridge may not write the ledger, or has another version of one of
// the rows.
func (c contents) conflicts(writer int, rows ...plan.Row) bool {
	return writer != c.writer || slices.ContainsFunc(rows, func(r plan.Row) bool {
		kept, _ := c.row(r.Bundle)
		return kept.Version != r.Version
	})
}

// save writes rows and submissions, all or none.
func (c *contents) save(writer int, rows []plan.Row, shared []plan.Submission) error {
	if c.conflicts(writer, rows...) {
		return ledger.ErrConflict
	}
	for i := range rows {
		rows[i].Version++
		kept := rows[i]
		kept.Status, kept.Progress = nil, ""
		c.rows[kept.Bundle] = &kept
		c.generation = max(c.generation, kept.Generation)
	}
	for _, s := range shared {
		if c.shared[s.Name] = s; s.State == plan.Over {
			delete(c.shared, s.Name)
			c.over[s.Name] = s
		}
	}
	return nil
}

// restore replaces the contents by the backup.
func (d *ledgerDisk) restore() {
	if d.backup.rows == nil || d.open != nil {
		return
	}
	d.w.logf("ledger", "restored as it was at %s", d.backedUp)
	lost := d.contents
	d.contents = d.backup.clone()
	d.restored, d.restoredAt = true, d.w.now
	if d.unknown == nil {
		d.unknown = map[string]bool{}
	}
	for _, c := range []contents{lost, d.contents} {
		for bundle, r := range c.rows {
			if lost.rows[bundle] != d.rows[bundle] {
				d.unknown[r.Run.Command] = true
			}
		}
	}
	clear(d.w.stopping)
	d.w.server.forgive()
}

// isUnknown reports whether the ledger has no row of a bundle, or an old one: it was restored, and the
// operator told the bridge to go on.
func (w *world) isUnknown(command string) bool { return w.ledger.unknown[command] }

// book is the ledger for one life of the bridge.
type book struct {
	*life
	real bridge.Ledger // nil for none
}

func (b *book) disk() *ledgerDisk { return b.ledger }

// agree ends the seed unless the real ledger, if there is one, gives the same answer as the simulated one.
func (b *book) agree(err error, call func(bridge.Ledger) error) error {
	if b.real == nil {
		return err
	}
	if answer := call(b.real); (answer == nil) != (err == nil) || !errors.Is(answer, err) {
		panic(fmt.Sprintf("the real ledger answers %v, the simulated one %v", answer, err))
	}
	return err
}

// Take makes this life the ledger's only writer.
func (b *book) Take(ctx context.Context) error {
	d := b.disk()
	if d.open != nil {
		var err error
		if b.real, err = d.open(); err != nil {
			panic(err)
		}
	}
	d.writer = b.number
	return b.agree(nil, func(l bridge.Ledger) error { return l.Take(ctx) })
}

// Outline returns the ledger's rows in outline.
func (b *book) Outline(ctx context.Context) (plan.Outline, error) {
	if b.crashes() {
		return plan.Outline{}, errCrashed
	}
	if b.real != nil {
		return b.real.Outline(ctx)
	}
	o := plan.Outline{Done: map[string]string{}}
	for _, r := range b.disk().rows {
		if r.Phase == plan.Done {
			o.Done[r.Bundle] = r.Queue
		} else {
			o.Rows = append(o.Rows, *r)
		}
	}
	slices.SortFunc(o.Rows, func(a, b plan.Row) int { return cmp.Compare(a.Bundle, b.Bundle) })
	return o, nil
}

// Row returns a bundle's row.
func (b *book) Row(ctx context.Context, bundle string) (plan.Row, error) {
	if b.crashes() {
		return plan.Row{}, errCrashed
	}
	if b.real != nil {
		return b.real.Row(ctx, bundle)
	}
	if r, ok := b.disk().row(bundle); ok {
		return r, nil
	}
	return plan.Row{}, ledger.ErrAbsent
}

// Generation returns the highest generation that was saved.
func (b *book) Generation(ctx context.Context) (int64, error) {
	n := b.disk().generation
	return n, b.agree(nil, func(l bridge.Ledger) error {
		kept, err := l.Generation(ctx)
		if err == nil && kept != n {
			err = fmt.Errorf("generation %d, and not %d", kept, n)
		}
		return err
	})
}

// Submissions returns the submissions that rows share.
func (b *book) Submissions(ctx context.Context) ([]plan.Submission, error) {
	if b.crashes() {
		return nil, errCrashed
	}
	if b.real != nil {
		return b.real.Submissions(ctx)
	}
	return slices.SortedFunc(maps.Values(b.disk().shared), plan.Submission.Compare), nil
}

// Save writes rows, and checks each transition.
func (b *book) Save(ctx context.Context, rows []plan.Row, shared ...plan.Submission) error {
	d := b.disk()
	if b.crashes() {
		return errCrashed
	}
	if b.w.fault(CrashSaving) && b.w.dice.coin(CrashSaving) {
		b.die("the ledger could not be written")
		return errCrashed
	}
	if d.w.dice.happen[LedgerOld] && d.w.now-d.backedUp > time.Minute {
		d.backup, d.backedUp = d.clone(), d.w.now
	}
	before, unsaved := make([]*plan.Row, len(rows)), rows
	for i := range rows {
		before[i] = d.rows[rows[i].Bundle]
	}
	if b.real != nil {
		unsaved = slices.Clone(rows)
	}
	err := b.agree(d.save(b.number, rows, shared), func(l bridge.Ledger) error { return l.Save(ctx, unsaved, shared...) })
	if err != nil {
		return err
	}
	for i := range rows {
		b.w.checkSaved(before[i], &rows[i])
	}
	b.w.checkTurns(b.life, before, rows)
	if b.w.fault(CrashSaving) {
		b.die("a crash right after the ledger was written")
		return errCrashed
	}
	if b.crashes() {
		return errCrashed
	}
	return nil
}

// Delete removes a row.
func (b *book) Delete(ctx context.Context, r plan.Row) error {
	d := b.disk()
	if b.crashes() {
		return errCrashed
	}
	b.w.checkForgotten(r)
	var err error
	if _, ok := d.row(r.Bundle); !ok || d.conflicts(b.number, r) {
		err = ledger.ErrConflict
	} else {
		delete(d.rows, r.Bundle)
		if bundle := b.w.server.bundleByID(r.Bundle); bundle != nil && (r.Dropped || bundle.command != r.Run.Command) {
			delete(b.w.disk.bundles, b.w.disk.keyOf(r.Bundle)) // a later row belongs to another bundle, or begins anew
			delete(b.w.verdicts, r.Run.Command)
		}
	}
	return b.agree(err, func(l bridge.Ledger) error { return l.Delete(ctx, r) })
}
