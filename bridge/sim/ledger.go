package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Ledger is a bridge's ledger.
type Ledger interface {
	Rows(ctx context.Context) ([]plan.Row, error)
	Generation(ctx context.Context) (int64, error)
	Save(ctx context.Context, rows []plan.Row) error
	Delete(ctx context.Context, r plan.Row) error
}

var errConflict = errors.New("the ledger was written by somebody else")

// Memory is a ledger that lives as long as the process. It keeps no more of a
// row than a real one does.
type Memory struct {
	rows       map[string]plan.Row
	generation int64
}

// NewMemory returns an empty ledger.
func NewMemory() *Memory { return &Memory{rows: map[string]plan.Row{}} }

// Rows returns all rows.
func (m *Memory) Rows(context.Context) ([]plan.Row, error) {
	rows := make([]plan.Row, 0, len(m.rows))
	for _, r := range m.rows {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b plan.Row) int { return cmp.Compare(a.Bundle, b.Bundle) })
	return rows, nil
}

// Generation returns the highest generation that was saved.
func (m *Memory) Generation(context.Context) (int64, error) { return m.generation, nil }

// Save writes rows, all or none, by compare-and-swap on their versions.
func (m *Memory) Save(_ context.Context, rows []plan.Row) error {
	for _, r := range rows {
		if m.rows[r.Bundle].Version != r.Version {
			return errConflict
		}
	}
	for i := range rows {
		rows[i].Version++
		kept := rows[i]
		kept.Status, kept.Progress = nil, ""
		m.rows[kept.Bundle] = kept
		m.generation = max(m.generation, kept.Generation)
	}
	return nil
}

// Delete removes a row.
func (m *Memory) Delete(_ context.Context, r plan.Row) error {
	if old, ok := m.rows[r.Bundle]; !ok || old.Version != r.Version {
		return errConflict
	}
	delete(m.rows, r.Bundle)
	return nil
}

// clone is a copy of the ledger, for a backup.
func (m *Memory) clone() *Memory {
	c := &Memory{rows: make(map[string]plan.Row, len(m.rows)), generation: m.generation}
	for k, r := range m.rows {
		c.rows[k] = r
	}
	return c
}

// ledgerDisk is the ledger of the site, whichever life of the bridge has it
// open.
type ledgerDisk struct {
	w      *world
	memory *Memory
	real   Ledger // beside memory, where one was asked for
	// backup is a copy, and when it was made.
	backup   *Memory
	backedUp time.Duration
}

func newLedgerDisk(w *world) ledgerDisk { return ledgerDisk{w: w, memory: NewMemory()} }

func (d *ledgerDisk) empty() bool { return len(d.memory.rows) == 0 }

// book is the ledger as one life of the bridge has it open.
type book struct {
	*life
}

func (b book) disk() *ledgerDisk { return &b.w.ledger }

// Rows returns all rows.
func (b book) Rows(ctx context.Context) ([]plan.Row, error) {
	if b.crashes() {
		return nil, errCrashed
	}
	if real := b.disk().real; real != nil {
		return real.Rows(ctx) //nolint:wrapcheck // the simulation is no layer of its own
	}
	return b.disk().memory.Rows(ctx)
}

// Generation returns the highest generation that was saved.
func (b book) Generation(ctx context.Context) (int64, error) { return b.disk().memory.Generation(ctx) }

// Save writes rows, and has each transition checked.
func (b book) Save(ctx context.Context, rows []plan.Row) error {
	d := b.disk()
	if b.crashes() {
		return errCrashed
	}
	if b.w.fault(CrashSaving) && b.w.dice.half(CrashSaving) {
		b.die("the ledger could not be written")
		return errCrashed
	}
	if d.w.now-d.backedUp > time.Minute {
		d.backup, d.backedUp = d.memory.clone(), d.w.now
	}
	before := make([]plan.Row, len(rows))
	for i, r := range rows {
		before[i] = d.memory.rows[r.Bundle]
	}
	if d.real != nil {
		if err := d.real.Save(ctx, slices.Clone(rows)); err != nil {
			return err //nolint:wrapcheck // the simulation is no layer of its own
		}
	}
	if err := d.memory.Save(ctx, rows); err != nil {
		return err
	}
	for i, r := range rows {
		b.w.checkSaved(before[i], r)
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
func (b book) Delete(ctx context.Context, r plan.Row) error {
	d := b.disk()
	if b.crashes() {
		return errCrashed
	}
	if d.real != nil {
		if err := d.real.Delete(ctx, r); err != nil {
			return err //nolint:wrapcheck // the simulation is no layer of its own
		}
	}
	b.w.checkForgotten(r)
	return d.memory.Delete(ctx, r)
}

// restore puts the backup in the ledger's place.
func (d *ledgerDisk) restore() {
	if d.backup == nil || d.real != nil {
		return
	}
	d.w.tell("ledger", "restored as it was at %s", d.backedUp)
	d.memory = d.backup.clone()
	d.w.recovered = true
	d.w.server.forgive()
}
