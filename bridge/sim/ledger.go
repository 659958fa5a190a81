package sim

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Ledger is a bridge's ledger.
type Ledger interface {
	Take(ctx context.Context) error
	Rows(ctx context.Context) ([]plan.Row, error)
	Generation(ctx context.Context) (int64, error)
	Save(ctx context.Context, rows []plan.Row) error
	Delete(ctx context.Context, r plan.Row) error
}

// Store keeps the rows of ledgers in memory, in the form in which a real ledger keeps them.
type Store struct {
	rows       map[string]*plan.Row // none of which is changed any more
	generation int64
	writer     int
}

// NewStore returns a store without rows.
func NewStore() *Store { return &Store{rows: map[string]*plan.Row{}} }

// Memory is a ledger in memory. Several may be open on one store.
type Memory struct {
	*Store
	number int // that Take gave; 0 before
}

// Take makes m the only writer of its store.
func (m *Memory) Take(context.Context) error {
	m.writer++
	m.number = m.writer
	return nil
}

func (m *Memory) isWriter() bool { return m.number == 0 || m.number == m.writer }

// Rows returns all rows.
func (m *Memory) Rows(context.Context) ([]plan.Row, error) {
	rows := make([]plan.Row, 0, len(m.rows))
	for _, r := range m.rows {
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b plan.Row) int { return cmp.Compare(a.Bundle, b.Bundle) })
	return rows, nil
}

// Generation returns the highest generation that was saved.
func (m *Memory) Generation(context.Context) (int64, error) { return m.generation, nil }

// Save writes rows, all or none, by compare-and-swap on their versions.
func (m *Memory) Save(_ context.Context, rows []plan.Row) error {
	if !m.isWriter() {
		return ledger.ErrConflict
	}
	for i := range rows {
		if m.version(rows[i].Bundle) != rows[i].Version {
			return ledger.ErrConflict
		}
	}
	for i := range rows {
		rows[i].Version++
		kept := rows[i]
		kept.Status, kept.Progress = nil, ""
		m.rows[kept.Bundle] = &kept
		m.generation = max(m.generation, kept.Generation)
	}
	return nil
}

// version is the version of a bundle's row; 0 for none.
func (s *Store) version(bundle string) int64 {
	if r := s.rows[bundle]; r != nil {
		return r.Version
	}
	return 0
}

// row returns a bundle's row, and whether there is one.
func (s *Store) row(bundle string) (plan.Row, bool) {
	if r := s.rows[bundle]; r != nil {
		return *r, true
	}
	return plan.Row{}, false
}

// Delete removes a row.
func (m *Memory) Delete(_ context.Context, r plan.Row) error {
	if old, ok := m.rows[r.Bundle]; !ok || !m.isWriter() || old.Version != r.Version {
		return ledger.ErrConflict
	}
	delete(m.rows, r.Bundle)
	return nil
}

// clone is a copy of the store, for a backup.
func (s *Store) clone() *Store {
	return &Store{rows: maps.Clone(s.rows), generation: s.generation, writer: s.writer}
}

// ledgerDisk is the site's ledger, for all lives of the bridge.
type ledgerDisk struct {
	w      *world
	memory *Store
	open   func() (Ledger, error) // a real one beside memory; nil for none
	// backup is a copy, and when it was made.
	backup   *Store
	backedUp time.Duration
	restored bool
}

func (d *ledgerDisk) empty() bool { return len(d.memory.rows) == 0 }

// book is the ledger that one life of the bridge has opened.
type book struct {
	*life
	Memory
	real Ledger // nil for none
}

// Take takes the ledger.
func (b *book) Take(ctx context.Context) error {
	b.Store = b.disk().memory
	if open := b.disk().open; open != nil {
		var err error
		if b.real, err = open(); err == nil {
			err = b.real.Take(ctx)
		}
		if err != nil {
			b.w.failure = err
			return err
		}
	}
	return b.Memory.Take(ctx)
}

func (b *book) disk() *ledgerDisk { return &b.w.ledger }

// Rows returns all rows.
func (b *book) Rows(ctx context.Context) ([]plan.Row, error) {
	if b.crashes() {
		return nil, errCrashed
	}
	if b.real != nil {
		return b.real.Rows(ctx)
	}
	return b.Memory.Rows(ctx)
}

// Save writes rows, and checks each transition.
func (b *book) Save(ctx context.Context, rows []plan.Row) error {
	d := b.disk()
	if b.crashes() {
		return errCrashed
	}
	if b.w.fault(CrashSaving) && b.w.dice.half(CrashSaving) {
		b.die("the ledger could not be written")
		return errCrashed
	}
	if d.w.dice.happen[LedgerOld] && d.w.now-d.backedUp > time.Minute {
		d.backup, d.backedUp = d.memory.clone(), d.w.now
	}
	before := make([]*plan.Row, len(rows))
	for i := range rows {
		before[i] = d.memory.rows[rows[i].Bundle]
	}
	if b.real != nil {
		if err := b.real.Save(ctx, slices.Clone(rows)); err != nil {
			return err
		}
	}
	if err := b.Memory.Save(ctx, rows); err != nil {
		return err
	}
	for i := range rows {
		b.w.checkSaved(before[i], &rows[i])
	}
	if b.w.fault(CrashSaving) {
		b.die("the ledger was written, and nobody was told")
		return errCrashed
	}
	if b.crashes() {
		return errCrashed
	}
	return nil
}

// Delete removes a row.
func (b *book) Delete(ctx context.Context, r plan.Row) error {
	if b.crashes() {
		return errCrashed
	}
	if b.real != nil {
		if err := b.real.Delete(ctx, r); err != nil {
			return err
		}
	}
	b.w.checkForgotten(r)
	return b.Memory.Delete(ctx, r)
}

// restore puts the backup in the ledger's place.
func (d *ledgerDisk) restore() {
	if d.backup == nil || d.open != nil {
		return
	}
	d.w.tell("ledger", "restored as it was at %s", d.backedUp)
	d.memory = d.backup.clone()
	d.restored, d.w.recovered = true, true
	d.w.server.forgive()
}
