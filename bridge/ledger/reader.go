package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// ErrAbsent means that there is no ledger, or no such row in it.
var ErrAbsent = errors.New("there is none")

// Reader reads a ledger. It is safe for concurrent use.
type Reader struct {
	db *sqldb.DB
}

// OpenToRead opens the ledger at where, given as for Open, while a bridge may write it. It changes nothing.
// It fails with ErrAbsent if no bridge has made a ledger there. The caller closes the reader.
func OpenToRead(ctx context.Context, where string) (*Reader, error) {
	if err := CheckPlace(where); err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	db, err := sqldb.OpenToRead(ctx, where, files)
	if errors.Is(err, sqldb.ErrAbsent) {
		return nil, fmt.Errorf("open ledger %s: %w", sqldb.Name(where), ErrAbsent)
	}
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Reader{db: db}, nil
}

// Close closes the ledger.
func (r *Reader) Close() error {
	if err := r.db.Close(); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// Bridge returns the six hexadecimal digits of the ledger's bridge.
func (r *Reader) Bridge(ctx context.Context) (string, error) {
	var id string
	err := r.db.GetContext(ctx, &id, `SELECT id FROM bridge`)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read id: %w", ErrAbsent)
	}
	if err != nil {
		return "", fmt.Errorf("read id: %w", err)
	}
	return id, nil
}

// Rows returns all rows.
func (r *Reader) Rows(ctx context.Context) ([]plan.Row, error) {
	var documents []document
	if err := r.db.SelectContext(ctx, &documents, `SELECT version, format, document FROM rows ORDER BY bundle`); err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return decode(documents)
}

// Outline returns the ledger's rows in outline.
func (r *Reader) Outline(ctx context.Context) (plan.Outline, error) {
	var found []struct {
		Bundle, Queue string
		document
	}
	err := r.db.SelectContext(ctx, &found, r.db.Rebind(`
		SELECT bundle, queue, version, format, CASE WHEN phase = ? THEN '' ELSE document END AS document
		FROM rows ORDER BY bundle`), string(plan.Done))
	if err != nil {
		return plan.Outline{}, fmt.Errorf("read rows: %w", err)
	}
	o, queues := plan.Outline{Done: map[string]string{}}, map[string]string{}
	var documents []document
	for _, f := range found {
		if f.Document != "" {
			documents = append(documents, f.document)
			continue
		}
		if _, ok := queues[f.Queue]; !ok {
			queues[f.Queue] = f.Queue
		}
		o.Done[f.Bundle] = queues[f.Queue] // all bundles of a queue share one string
	}
	o.Rows, err = decode(documents)
	return o, err
}

// EachUnfinished calls do with each row that is not done, in the order of their bundles. It holds all of
// them packed in memory, and unpacks one at a time.
func (r *Reader) EachUnfinished(ctx context.Context, do func(plan.Row)) error {
	var documents []document
	query := `SELECT version, format, document FROM rows WHERE phase <> ? ORDER BY bundle`
	if err := r.db.SelectContext(ctx, &documents, r.db.Rebind(query), string(plan.Done)); err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	for _, d := range documents {
		row, err := d.row()
		if err != nil {
			return err
		}
		do(row)
	}
	return nil
}

// Phases returns the phase of each row. It is much cheaper than Rows.
func (r *Reader) Phases(ctx context.Context) (map[string]plan.Phase, error) {
	var found []struct {
		Bundle string
		Phase  plan.Phase
	}
	if err := r.db.SelectContext(ctx, &found, `SELECT bundle, phase FROM rows`); err != nil {
		return nil, fmt.Errorf("read phases: %w", err)
	}
	phases := make(map[string]plan.Phase, len(found))
	for _, f := range found {
		phases[f.Bundle] = f.Phase
	}
	return phases, nil
}

// decode returns the rows of documents.
func decode(documents []document) ([]plan.Row, error) {
	rows := make([]plan.Row, len(documents))
	err := each(len(documents), func(i int) (err error) {
		rows[i], err = documents[i].row()
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// each calls do for 0 to n-1, in shares that run in parallel, because most of the work is encoding and
// decoding documents. It returns the first error.
func each(n int, do func(i int) error) error {
	var g errgroup.Group
	share := max(n/runtime.GOMAXPROCS(0)+1, 16)
	for from := 0; from < n; from += share {
		g.Go(func() error {
			for i := from; i < min(from+share, n); i++ {
				if err := do(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// Row returns a bundle's row; ErrAbsent if it has none.
func (r *Reader) Row(ctx context.Context, bundle string) (plan.Row, error) {
	var found []document
	err := r.db.SelectContext(ctx, &found, r.db.Rebind(`SELECT version, format, document FROM rows WHERE bundle = ?`), bundle)
	if err != nil {
		return plan.Row{}, fmt.Errorf("read row %s: %w", bundle, err)
	}
	if len(found) == 0 {
		return plan.Row{}, fmt.Errorf("read row %s: %w", bundle, ErrAbsent)
	}
	return found[0].row()
}

// Bundles returns at most limit bundles with a row or a history, whose UUIDs begin with prefix: 0x and a few
// hexadecimal digits.
func (r *Reader) Bundles(ctx context.Context, prefix string, limit int) ([]string, error) {
	end := prefix + "g" // hexadecimal digits end before g
	var bundles []string
	err := r.db.SelectContext(ctx, &bundles, r.db.Rebind(`
		SELECT bundle FROM rows WHERE bundle >= ? AND bundle < ?
		UNION SELECT bundle FROM history WHERE bundle >= ? AND bundle < ?
		UNION SELECT bundle FROM forgotten WHERE bundle >= ? AND bundle < ?
		ORDER BY bundle LIMIT ?`), prefix, end, prefix, end, prefix, end, limit)
	if err != nil {
		return nil, fmt.Errorf("find bundles %s: %w", prefix, err)
	}
	return bundles, nil
}

// Generation returns the highest plan.Row.Generation that was ever saved, including rows that are gone.
func (r *Reader) Generation(ctx context.Context) (int64, error) {
	var generation int64
	if err := r.db.GetContext(ctx, &generation, `SELECT generation FROM bridge`); err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return generation, nil
}
