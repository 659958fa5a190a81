package ledger

import (
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// record is a row that is being saved.
type record struct {
	row plan.Row
	// reason is the row's, as text that every database accepts.
	reason   string
	document string
	// entries counts the entries that its history has ever had, including the one of this save.
	entries int64
	// changed is set when this save adds an entry.
	changed bool
}

// rowsPerStatement keeps a statement below SQLite's limit of 32766 parameters.
const rowsPerStatement = 1000

// save writes records with a few statements in all, because each statement costs a round trip to a server.
func save(tx *sqlx.Tx, records []record) error {
	if err := compareVersions(tx, records); err != nil {
		return err
	}
	args := make([]any, 0, len(records)*12)
	for _, rec := range records {
		r := rec.row
		args = append(args, r.Bundle, r.Version+1, validText(r.Queue), validText(string(r.Phase)), rec.reason, r.Attempt.Number, validText(string(r.SubmissionName)),
			int64(r.Job.ID), r.PhaseSince.Unix(), format, rec.document, rec.entries)
	}
	written, err := exec(tx, `
		INSERT INTO rows (bundle, version, queue, phase, reason, attempt, mark, job, since, format, document, entries)
		VALUES `+values(len(records), 12)+`
		ON CONFLICT (bundle) DO UPDATE SET version = excluded.version, queue = excluded.queue, phase = excluded.phase,
			reason = excluded.reason, attempt = excluded.attempt, mark = excluded.mark, job = excluded.job,
			since = excluded.since, format = excluded.format, document = excluded.document, entries = excluded.entries
		WHERE rows.version = excluded.version - 1`, args...)
	if err != nil {
		return err
	}
	if written != int64(len(records)) {
		return ErrConflict // another writer came between compareVersions and this swap
	}
	if err := addCharges(tx, records); err != nil {
		return err
	}
	return addEntries(tx, records)
}

// storedRow is the stored state of a row.
type storedRow struct {
	Bundle, Phase, Reason     string
	Version, Attempt, Entries int64
}

// compareVersions checks that each record is the next version of its row. It sets the records' entries and
// changed.
func compareVersions(tx *sqlx.Tx, records []record) error {
	bundles := make([]any, len(records))
	var fresh []any
	for i, rec := range records {
		bundles[i] = rec.row.Bundle
		if rec.row.Version == 0 {
			fresh = append(fresh, rec.row.Bundle)
		}
	}
	before, err := selectStored(tx, `SELECT bundle, version, phase, reason, attempt, entries FROM rows WHERE bundle IN `, bundles)
	if err != nil {
		return err
	}
	// A bundle that was forgotten and is new again continues its history.
	if err := restoreHistories(tx, fresh); err != nil {
		return err
	}
	earlier, err := selectStored(tx, `SELECT bundle, max(n) AS entries FROM history WHERE bundle IN `, fresh, ` GROUP BY bundle`)
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
		rec.changed = !known || old.Phase != validText(string(r.Phase)) || old.Reason != rec.reason || old.Attempt != int64(r.Attempt.Number)
		rec.entries = old.Entries
		if rec.changed {
			rec.entries++
		}
	}
	return nil
}

// selectStored runs a query for some bundles.
func selectStored(tx *sqlx.Tx, query string, bundles []any, more ...string) (map[string]storedRow, error) {
	found := make(map[string]storedRow, len(bundles))
	if len(bundles) == 0 {
		return found, nil
	}
	var list []storedRow
	query += values(1, len(bundles)) + strings.Join(more, "")
	if err := tx.Select(&list, tx.Rebind(query), bundles...); err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	for _, s := range list {
		found[s.Bundle] = s
	}
	return found, nil
}

// values returns a list of n tuples of parameters: (?,?),(?,?).
func values(n, columns int) string {
	tuple := "(" + strings.Repeat("?,", columns-1) + "?)"
	return strings.Repeat(tuple+",", n-1) + tuple
}

// validText returns s as text that every database accepts. Reasons quote the output of other programs, and
// PostgreSQL refuses NUL and invalid UTF-8.
func validText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
