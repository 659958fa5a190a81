package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"
)

// Value is a value in a file of a bundle's contents.
type Value struct {
	// Path is the genpath of the value, such as "/stats.json:test/error".
	Path string
	// Number is nil for a text that is no finite number.
	Number *float64
	Text   string
}

// ValuedAtOnce is the number of bundles whose values SetValues writes in one transaction at most.
const ValuedAtOnce = changedAtOnce

// Unvalued returns bundles whose contents the store has no values of, ValuedAtOnce of them at most, in the order of their
// uuids after one of them. They have the fields that OpenContents needs, and their names and links.
func (s *Store) Unvalued(ctx context.Context, after string) ([]Bundle, error) {
	var rows []bundleRow
	err := s.db.SelectContext(ctx, &rows, s.db.Rebind(`
		SELECT uuid, contents, metadata FROM bundles WHERE valued <> contents AND uuid > ? ORDER BY uuid LIMIT ?`), after, ValuedAtOnce)
	if err != nil {
		return nil, rowError(err, "find bundles without values")
	}
	found := make([]Bundle, 0, len(rows))
	for _, row := range rows {
		b, err := row.bundle()
		if err != nil {
			return nil, err
		}
		found = append(found, b)
	}
	return found, nil
}

// SetValues replaces the values of bundles, which Unvalued has returned, by those of the map. It leaves out a bundle whose
// contents have changed since.
func (s *Store) SetValues(ctx context.Context, bundles []Bundle, values map[string][]Value) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		same, err := unchangedContents(ctx, tx, bundles)
		if err != nil || len(same) == 0 {
			return err
		}
		for _, statement := range []string{`UPDATE bundles SET valued = contents WHERE uuid IN (?)`, `DELETE FROM bundle_values WHERE bundle_uuid IN (?)`} {
			query, args, err := sqlx.In(statement, same)
			if err == nil {
				_, err = tx.ExecContext(ctx, tx.Rebind(query), args...)
			}
			if err != nil {
				return fmt.Errorf("set values of bundles: %w", err)
			}
		}
		for _, uuid := range same {
			if err := insertValues(ctx, tx, uuid, values[uuid]); err != nil {
				return fmt.Errorf("set values of bundle %s: %w", uuid, err)
			}
		}
		return nil
	})
}

// unchangedContents returns the uuids of those of these bundles that have the same contents still.
func unchangedContents(ctx context.Context, tx *sqlx.Tx, bundles []Bundle) (same []string, err error) {
	contents := map[string]string{}
	for _, b := range bundles {
		contents[b.UUID] = b.Contents
	}
	found, err := selectIn[Bundle](ctx, tx, slices.Collect(maps.Keys(contents)), `SELECT uuid, contents FROM bundles WHERE uuid IN (?)`)
	for _, b := range found {
		if b.Contents == contents[b.UUID] {
			same = append(same, b.UUID)
		}
	}
	return same, rowError(err, "read contents of bundles")
}

func insertValues(ctx context.Context, tx *sqlx.Tx, uuid string, values []Value) error {
	const inOne = 100 // rows of a statement
	for part := range slices.Chunk(values, inOne) {
		var args []any
		for _, v := range part {
			args = append(args, uuid, v.Path, v.Number, v.Text)
		}
		_, err := tx.ExecContext(ctx, tx.Rebind(`INSERT INTO bundle_values (bundle_uuid, path, number, text) VALUES `+
			strings.TrimSuffix(strings.Repeat("(?, ?, ?, ?), ", len(part)), ", ")), args...)
		if err != nil {
			return err //nolint:wrapcheck // SetValues does
		}
	}
	return nil
}

// ValuePath is a path at which bundles have values.
type ValuePath struct {
	Path string
	// Bundles is the number of bundles that have a value there.
	Bundles int
}

// ValuePaths returns the paths at which these bundles have values: those of the most bundles first, then by name.
func (s *Store) ValuePaths(ctx context.Context, uuids []string) ([]ValuePath, error) {
	rows, err := selectIn[ValuePath](ctx, s.db, uuids, `SELECT path, count(*) AS bundles FROM bundle_values WHERE bundle_uuid IN (?) GROUP BY path`)
	if err != nil {
		return nil, rowError(err, "list paths of values")
	}
	counts := map[string]int{}
	for _, row := range rows {
		counts[row.Path] += row.Bundles
	}
	paths := []ValuePath{}
	for path, n := range counts {
		paths = append(paths, ValuePath{path, n})
	}
	slices.SortFunc(paths, func(a, b ValuePath) int {
		return cmp.Or(cmp.Compare(b.Bundles, a.Bundles), cmp.Compare(a.Path, b.Path))
	})
	return paths, nil
}

// Values returns the texts of the values that these bundles have at these paths, by uuid and path.
func (s *Store) Values(ctx context.Context, uuids, paths []string) (map[string]map[string]string, error) {
	values := map[string]map[string]string{}
	for _, path := range paths {
		rows, err := selectIn[struct {
			UUID string `db:"bundle_uuid"`
			Text string `db:"text"`
		}](ctx, s.db, uuids, `SELECT bundle_uuid, text FROM bundle_values WHERE bundle_uuid IN (?) AND path = ?`, path)
		if err != nil {
			return nil, rowError(err, "get values")
		}
		for _, row := range rows {
			if values[row.UUID] == nil {
				values[row.UUID] = map[string]string{}
			}
			values[row.UUID][path] = row.Text
		}
	}
	return values, nil
}
