// Package ledger keeps the bridge's rows in SQL.
//
// A row is saved by compare-and-swap on its version, so that two bridges that
// were started on one ledger by mistake cannot both decide the same row: the
// second one's save fails with ErrConflict. What Save returned for is on the
// disk, also after a crash of the machine.
package ledger

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// ErrConflict is returned by Save and Delete when a row is not what the caller
// thinks: somebody else writes the same ledger.
var ErrConflict = errors.New("the ledger was written by somebody else")

//go:embed migrations/*.sql
var migrations embed.FS

// Ledger is an open ledger. It is safe for concurrent use.
type Ledger struct {
	db *sqldb.DB
	// ID is the bridge's own six hexadecimal digits, made with the ledger.
	ID string
}

// Open opens the SQLite file at path, creating it where it is missing. Its
// directory must be on a local disk.
func Open(ctx context.Context, path string) (*Ledger, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	db, err := sqldb.Open(ctx, path, files)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l := &Ledger{db: db}
	if err := db.InTx(ctx, l.identify); err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), db.Close())
	}
	return l, nil
}

// identify reads the ledger's id, or makes it.
func (l *Ledger) identify(tx *sqlx.Tx) error {
	var ids []string
	if err := tx.Select(&ids, `SELECT id FROM bridge`); err != nil {
		return fmt.Errorf("read id: %w", err)
	}
	if len(ids) > 0 {
		l.ID = ids[0]
		return nil
	}
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand.Read
	l.ID = hex.EncodeToString(b[:])
	if _, err := tx.Exec(tx.Rebind(`INSERT INTO bridge (id) VALUES (?)`), l.ID); err != nil {
		return fmt.Errorf("write id: %w", err)
	}
	return nil
}

// Close closes the ledger.
func (l *Ledger) Close() error {
	if err := l.db.Close(); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// Rows returns all rows.
func (l *Ledger) Rows(ctx context.Context) ([]plan.Row, error) {
	var records []struct {
		Version  int64
		Document string
	}
	if err := l.db.SelectContext(ctx, &records, `SELECT version, document FROM rows ORDER BY bundle`); err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	rows := make([]plan.Row, 0, len(records))
	for _, rec := range records {
		var r plan.Row
		if err := json.Unmarshal([]byte(rec.Document), &r); err != nil {
			return nil, fmt.Errorf("read row: %w", err)
		}
		r.Version = rec.Version
		rows = append(rows, r)
	}
	return rows, nil
}

// Generation is the highest number of a submission that was ever saved.
func (l *Ledger) Generation(ctx context.Context) (int64, error) {
	var n int64
	if err := l.db.GetContext(ctx, &n, `SELECT generation FROM bridge`); err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return n, nil
}

// Save writes rows, all or none, and raises their versions in place. A row of
// version 0 is new. With ErrConflict nothing was written.
func (l *Ledger) Save(ctx context.Context, rows []plan.Row) error {
	documents := make([]string, len(rows))
	for i, r := range rows {
		doc, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("save row %s: %w", r.Bundle, err)
		}
		documents[i] = string(doc)
	}
	err := l.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var highest int64
		for i, r := range rows {
			if err := save(tx, r, documents[i]); err != nil {
				return fmt.Errorf("save row %s: %w", r.Bundle, err)
			}
			highest = max(highest, r.Generation)
		}
		if highest == 0 {
			return nil
		}
		return changesOne(tx, `UPDATE bridge SET generation = CASE WHEN generation < ? THEN ? ELSE generation END`, highest, highest)
	})
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Version++
	}
	return nil
}

func save(tx *sqlx.Tx, r plan.Row, document string) error {
	statement := `UPDATE rows SET version = version + 1, queue = ?, phase = ?, reason = ?, attempt = ?, mark = ?,
		job = ?, since = ?, document = ? WHERE bundle = ? AND version = ?`
	args := []any{r.Queue, r.Phase, r.Reason, r.Attempt, r.Mark, int64(r.Job.ID), r.Since.Unix(), document, r.Bundle, r.Version}
	if r.Version == 0 {
		statement = `INSERT INTO rows (queue, phase, reason, attempt, mark, job, since, document, bundle, version)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ? + 1) ON CONFLICT DO NOTHING`
	}
	return changesOne(tx, statement, args...)
}

// Delete removes a row.
func (l *Ledger) Delete(ctx context.Context, r plan.Row) error {
	err := l.db.InTx(ctx, func(tx *sqlx.Tx) error {
		return changesOne(tx, `DELETE FROM rows WHERE bundle = ? AND version = ?`, r.Bundle, r.Version)
	})
	if err != nil {
		return fmt.Errorf("delete row %s: %w", r.Bundle, err)
	}
	return nil
}

func changesOne(tx *sqlx.Tx, statement string, args ...any) error {
	result, err := tx.Exec(tx.Rebind(statement), args...)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if n != 1 {
		return ErrConflict
	}
	return nil
}
