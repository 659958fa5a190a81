package ledger

import (
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// record is a row on its way into the ledger.
type record struct {
	row plan.Row
	// reason is the row's, as a database takes it.
	reason   string
	document string
	// entries is how many entries its history has had, with the one that this
	// save adds.
	entries int64
	// changed is set when this save adds an entry.
	changed bool
}

// parts splits records so that one statement takes each part. SQLite has the
// lower limit, 32766 parameters.
func parts(records []record) func(yield func([]record) bool) {
	const most = 1000
	return func(yield func([]record) bool) {
		for len(records) > 0 {
			n := min(most, len(records))
			if !yield(records[:n]) {
				return
			}
			records = records[n:]
		}
	}
}

// save writes records, a few statements for all of them: on a server each one
// costs a round trip.
func save(tx *sqlx.Tx, records []record) error {
	if err := compare(tx, records); err != nil {
		return err
	}
	args := make([]any, 0, len(records)*11)
	for _, rec := range records {
		r := rec.row
		args = append(args, r.Bundle, r.Version+1, text(r.Queue), text(string(r.Phase)), rec.reason, r.Attempt, text(string(r.SubmissionName)),
			int64(r.Job.ID), r.Since.Unix(), rec.document, rec.entries)
	}
	written, err := exec(tx, `
		INSERT INTO rows (bundle, version, queue, phase, reason, attempt, mark, job, since, document, entries)
		VALUES `+values(len(records), 11)+`
		ON CONFLICT (bundle) DO UPDATE SET version = excluded.version, queue = excluded.queue, phase = excluded.phase,
			reason = excluded.reason, attempt = excluded.attempt, mark = excluded.mark, job = excluded.job,
			since = excluded.since, document = excluded.document, entries = excluded.entries
		WHERE rows.version = excluded.version - 1`, args...)
	if err != nil {
		return err
	}
	if written != int64(len(records)) {
		return ErrConflict // compare has seen to it; this is the swap's own word
	}
	return remember(tx, records)
}

// saved is what the ledger has of a row.
type saved struct {
	Bundle, Phase, Reason     string
	Version, Attempt, Entries int64
}

// compare makes sure that each record follows what the ledger has, and finds
// out what it adds to the history.
func compare(tx *sqlx.Tx, records []record) error {
	bundles := make([]any, len(records))
	var fresh []any
	for i, rec := range records {
		bundles[i] = rec.row.Bundle
		if rec.row.Version == 0 {
			fresh = append(fresh, rec.row.Bundle)
		}
	}
	before, err := read(tx, `SELECT bundle, version, phase, reason, attempt, entries FROM rows WHERE bundle IN `, bundles)
	if err != nil {
		return err
	}
	// What was forgotten and is new again goes on with its history.
	earlier, err := read(tx, `SELECT bundle, max(n) AS entries FROM history WHERE bundle IN `, fresh, ` GROUP BY bundle`)
	if err != nil {
		return err
	}
	for i := range records {
		rec := &records[i]
		r := rec.row
		old, known := before[r.Bundle]
		if old.Version != r.Version {
			return fmt.Errorf("row %s: %w", r.Bundle, ErrConflict)
		}
		if !known {
			old.Entries = earlier[r.Bundle].Entries
		}
		rec.changed = !known || old.Phase != text(string(r.Phase)) || old.Reason != rec.reason || old.Attempt != int64(r.Attempt)
		rec.entries = old.Entries
		if rec.changed {
			rec.entries++
		}
	}
	return nil
}

// read asks what there is of some bundles.
func read(tx *sqlx.Tx, query string, bundles []any, more ...string) (map[string]saved, error) {
	found := make(map[string]saved, len(bundles))
	if len(bundles) == 0 {
		return found, nil
	}
	var list []saved
	query += values(1, len(bundles)) + strings.Join(more, "")
	if err := tx.Select(&list, tx.Rebind(query), bundles...); err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	for _, s := range list {
		found[s.Bundle] = s
	}
	return found, nil
}

// values is a list of n tuples of parameters: (?,?),(?,?).
func values(n, columns int) string {
	tuple := "(" + strings.Repeat("?,", columns-1) + "?)"
	return strings.Repeat(tuple+",", n-1) + tuple
}

// text is s as every database takes it: reasons quote what other programs have
// printed, and PostgreSQL refuses what is not UTF-8, and NUL.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
