// Package ledger stores the bridge's rows in SQL: in an SQLite file, or in a schema of a PostgreSQL
// server, with the same statements.
//
// # Rows
//
// Save compares and swaps a row's version. So if two bridges are started on one ledger by mistake, they
// cannot both decide the same row: the second one's save fails with ErrConflict. When Save returns, its
// rows are on the disk and survive a crash of the machine. A bridge also takes Lock, so that a second one
// fails at its start.
//
// # History
//
// Each save that changes a row's phase, reason or attempt adds an Entry, in the same transaction. A
// bundle keeps its first 16 entries and its last 48, so that a bundle that is retried for weeks does not
// fill the disk; Entry.N shows the gap. A history outlives its row by Ledger.KeepHistory, counted from the
// row's last decision by the bridge's own clock. So a bridge that does not run removes nothing.
//
// # Charges
//
// The same transaction writes the cost of an attempt whose job has ended, as a row of numbers: a report reads a
// hundred thousand of them in a second, and rows are packed. A charge stays as long as a history.
//
// # Size
//
// Rows, and the histories of bundles without a row, are packed: a bundle takes one to three kilobytes
// until it is forgotten, and less than half a kilobyte after that. When much of an SQLite file is unused,
// the ledger gives the space back to the disk.
//
// # Places
//
// The SQLite file belongs on a disk of one host: Open, OpenToRead, Lock and MakeDir refuse
// network file systems with ErrNetwork. A PostgreSQL server serves many bridges, each of which
// has a schema of its own (search_path in the URL, or the schema named as the user) or a database
// of its own.
package ledger

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// ErrConflict is returned by Save and Delete if a row differs from the caller's: another program writes
// the same ledger.
var ErrConflict = errors.New("the ledger was written by another program")

//go:embed migrations/*.sql
var migrations embed.FS

// Ledger is an open ledger. It is safe for concurrent use.
type Ledger struct {
	Reader
	// ID is the bridge's own number, of six hexadecimal digits. It is made together with the ledger.
	ID string
	// KeepHistory is the time that the history of a bundle stays after its row's last decision; 0 for
	// DefaultKeepHistory. It is set before the first write.
	KeepHistory time.Duration

	writer  int64 // the number from Take; 0 before
	deleted atomic.Int64
}

// Open opens the ledger at where, the path of an SQLite file or the URL of a PostgreSQL database
// (postgres://…), and makes the file or the tables if they are missing. See sqldb.Open for the forms of a
// path and a URL. The caller closes the ledger.
func Open(ctx context.Context, where string) (*Ledger, error) {
	if err := CheckPlace(where); err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	db, err := sqldb.Open(ctx, where, files)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l := &Ledger{Reader: Reader{db: db}}
	if err := db.InTx(ctx, l.identify); err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), db.Close())
	}
	return l, nil
}

// Take makes l the only writer of the ledger. Save and Delete of earlier writers then return ErrConflict,
// so they cannot save rows that l does not know. The caller calls Take once, before l's first write.
func (l *Ledger) Take(ctx context.Context) error {
	writer := 1 + mathrand.Int64N(math.MaxInt64) //nolint:gosec // no secret; a counter would repeat itself after a restored copy
	err := l.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := exec(tx, `UPDATE bridge SET writer = ?`, writer)
		return err
	})
	if err != nil {
		return fmt.Errorf("take ledger: %w", err)
	}
	l.writer = writer
	return nil
}

// assertWriter fails if another writer took the ledger, and blocks others from taking it until tx ends. It
// saves the highest generation of rows, because the ledger must know it even after its row is gone.
func (l *Ledger) assertWriter(tx *sqlx.Tx, rows ...plan.Row) error {
	var highest int64
	for _, r := range rows {
		highest = max(highest, r.Generation)
	}
	statement := `UPDATE bridge SET generation = CASE WHEN generation < ? THEN ? ELSE generation END`
	args := []any{highest, highest}
	if l.writer != 0 {
		statement += ` WHERE writer = ?`
		args = append(args, l.writer)
	}
	changed, err := exec(tx, statement, args...)
	if err == nil && changed != 1 {
		err = ErrConflict
	}
	return err
}

// Raise raises the ledger's generation to at least this value. It is for a ledger that was restored from
// an old copy and was taken by l. It returns the same errors as Save.
func (l *Ledger) Raise(ctx context.Context, generation int64) error {
	err := l.db.InTx(ctx, func(tx *sqlx.Tx) error {
		return l.assertWriter(tx, plan.Row{Attempt: plan.Attempt{Generation: generation}})
	})
	if err != nil {
		return fmt.Errorf("raise generation: %w", err)
	}
	return nil
}

// ErrLocked means that another bridge has the lock of a ledger.
var ErrLocked = errors.New("another cl-bridge works on it")

// Lock locks the ledger at where for one bridge, until the caller calls release or the program ends; see
// sqldb.Lock. Its error wraps ErrLocked if another bridge has the lock.
func Lock(ctx context.Context, where string) (release func(), err error) {
	if err := CheckPlace(where); err != nil {
		return nil, err
	}
	release, err = sqldb.Lock(ctx, where)
	if errors.Is(err, sqldb.ErrLocked) {
		return nil, fmt.Errorf("lock ledger %s: %w", sqldb.Name(where), ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("lock ledger: %w", err)
	}
	return release, nil
}

// Locked reports whether a bridge has locked the ledger at where. It changes nothing.
func Locked(ctx context.Context, where string) (bool, error) {
	locked, err := sqldb.Locked(ctx, where)
	if err != nil {
		return false, fmt.Errorf("look for a running bridge: %w", err)
	}
	return locked, nil
}

// identify reads the ledger's id, or makes one.
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
	_, err := exec(tx, `INSERT INTO bridge (id) VALUES (?)`, l.ID)
	return err
}

// Save writes rows, and submissions that rows share, all or none, and raises the versions of the rows in place. A row of version 0
// is new. Each bundle and each submission occurs once. A submission that is plan.Over is removed. Without both Save only checks that l
// is still the writer.
//
// After ErrConflict, and after an error whose method Transient() bool returns true, nothing was written;
// after a transient error the caller may save the same rows later. After any other error the ledger has
// either the old rows or the new ones, and the caller has to read them again.
func (l *Ledger) Save(ctx context.Context, rows []plan.Row, shared ...plan.Submission) error {
	records := make([]record, len(rows))
	err := each(len(rows), func(i int) error {
		encoded, err := json.Marshal(rows[i])
		var packed string
		if err == nil {
			packed, err = packs.pack(encoded)
		}
		if err != nil {
			return fmt.Errorf("save row %s: %w", rows[i].Bundle, err)
		}
		records[i] = record{row: rows[i], reason: validText(rows[i].Reason), document: packed}
		return nil
	})
	if err != nil {
		return err
	}
	documents, err := packShared(shared)
	if err != nil {
		return err
	}
	err = l.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if err := l.assertWriter(tx, rows...); err != nil {
			return err
		}
		for part := range slices.Chunk(records, rowsPerStatement) {
			if err := save(tx, part); err != nil {
				return err
			}
		}
		return saveShared(tx, shared, documents)
	})
	if err != nil {
		return fmt.Errorf("save rows: %w", err)
	}
	for i := range rows {
		rows[i].Version++
	}
	return nil
}

// Delete removes a row. It returns the same errors as Save.
func (l *Ledger) Delete(ctx context.Context, r plan.Row) error {
	err := l.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if err := l.assertWriter(tx); err != nil {
			return err
		}
		changed, err := exec(tx, `DELETE FROM rows WHERE bundle = ? AND version = ?`, r.Bundle, r.Version)
		if err != nil {
			return err
		}
		if changed != 1 {
			return ErrConflict
		}
		return forgetBundle(tx, r.Bundle, r.DecidedAt, cmp.Or(l.KeepHistory, DefaultKeepHistory))
	})
	if err != nil {
		return fmt.Errorf("delete row %s: %w", r.Bundle, err)
	}
	if l.deleted.Add(1)%shrinkEvery == 0 {
		_ = l.db.Shrink(ctx) // if it fails, a later call makes the file smaller
	}
	return nil
}

// shrinkEvery is the number of deleted rows after which the ledger tries to shrink its file.
const shrinkEvery = 256

// exec runs a statement and returns the number of rows that it changed.
func exec(tx *sqlx.Tx, statement string, args ...any) (int64, error) {
	result, err := tx.Exec(tx.Rebind(statement), args...) //nolint:noctx // tx has the context of its InTx
	if err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	return n, nil
}
