package store

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"
)

// bundleColumn is a column of the table bundles that changes of a bundle may write.
type bundleColumn struct {
	name, kind string
	of         func(*bundleRow) any
}

// bundleColumns returns the columns that changes of a bundle may write. Their values can be compared.
func bundleColumns() []bundleColumn {
	return []bundleColumn{
		{"owner_id", "TEXT", func(r *bundleRow) any { return r.OwnerID }},
		{"state", "TEXT", func(r *bundleRow) any { return string(r.State) }},
		{"frozen", "TEXT", func(r *bundleRow) any { return pointed(r.Frozen) }},
		{"is_anonymous", "BIGINT", func(r *bundleRow) any { return number(r.IsAnonymous) }},
		{"name", "TEXT", func(r *bundleRow) any { return r.Name }},
		{"data_size", "BIGINT", func(r *bundleRow) any { return r.DataSize }},
		{"entries", "BIGINT", func(r *bundleRow) any { return r.Entries }},
		{"metadata", "TEXT", func(r *bundleRow) any { return r.MetadataJSON }},
		{"tags", "TEXT", func(r *bundleRow) any { return pointed(r.Tags) }},
		{"run_time", "BIGINT", func(r *bundleRow) any { return pointed(r.RunTime) }},
		{"contents", "TEXT", func(r *bundleRow) any { return r.Contents }},
		{"offered_to", "TEXT", func(r *bundleRow) any { return r.Offer.To }},
		{"offered", "BIGINT", func(r *bundleRow) any { return r.Offer.Made.micros() }},
		{"cost", "TEXT", func(r *bundleRow) any { return r.CostJSON }},
		{"platform", "TEXT", func(r *bundleRow) any { return r.PlatformJSON }},
		{"worker_user", "TEXT", func(r *bundleRow) any { return r.WorkerUser }},
		{"worker_id", "TEXT", func(r *bundleRow) any { return r.WorkerID }},
		{"assigned", "BIGINT", func(r *bundleRow) any { return r.Assigned.micros() }},
		{"kill_message", "TEXT", func(r *bundleRow) any { return r.KillMessage }},
	}
}

// pointed returns the value of a column that may be NULL.
func pointed[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// changedColumns returns the columns in which two rows of a bundle differ, as a bit for each place in bundleColumns.
func changedColumns(a, b *bundleRow) (changed uint32) {
	for i, c := range bundleColumns() {
		if c.of(a) != c.of(b) {
			changed |= 1 << i
		}
	}
	return changed
}

// writeRows writes the columns that have changed, one statement for all bundles with the same ones. A report of a worker changes
// the metadata alone, and most other columns are in indexes, which a statement with such a column writes whatever its value.
func (w *writer) writeRows(ctx context.Context, tx *sqlx.Tx) error {
	alike := map[uint32][]bundleRow{}
	for _, uuid := range slices.Sorted(maps.Keys(w.rows)) {
		row, had := w.rows[uuid], w.had[uuid].bundleRow
		if changed := changedColumns(&had, &row); changed != 0 {
			alike[changed] = append(alike[changed], row)
		}
	}
	for _, changed := range slices.Sorted(maps.Keys(alike)) {
		var set []bundleColumn
		for i, c := range bundleColumns() {
			if changed&(1<<i) != 0 {
				set = append(set, c)
			}
		}
		rows := alike[changed]
		for size := changedAtOnce; len(rows) > 0; {
			if len(rows) < size { // few sizes make few statements, which the database need not compile again
				size = (size + 1) / 2
				continue
			}
			if err := updateRows(ctx, tx, set, rows[:size]); err != nil {
				return err
			}
			rows = rows[size:]
		}
	}
	return nil
}

// updateRows writes columns of some rows by one statement.
func updateRows(ctx context.Context, tx *sqlx.Tx, set []bundleColumn, rows []bundleRow) error {
	var query strings.Builder
	query.WriteString("UPDATE bundles SET ")
	typed, plain := "(CAST(? AS TEXT)", "(?" // the types of the first row are those of all
	for i, c := range set {
		if i > 0 {
			query.WriteString(", ")
		}
		query.WriteString(c.name + " = v.column" + strconv.Itoa(i+2)) // the uuid is the first one
		typed, plain = typed+", CAST(? AS "+c.kind+")", plain+", ?"
	}
	query.WriteString(" FROM (VALUES " + typed + ")" + strings.Repeat(", "+plain+")", len(rows)-1) + ") AS v WHERE bundles.uuid = v.column1")
	args := make([]any, 0, len(rows)*(len(set)+1))
	for i := range rows {
		args = append(args, rows[i].UUID)
		for _, c := range set {
			args = append(args, c.of(&rows[i]))
		}
	}
	_, err := tx.ExecContext(ctx, tx.Rebind(query.String()), args...)
	return err //nolint:wrapcheck // write names what it changes
}
