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
	// reason is the row's, in a form that every database accepts.
	reason   string
	document string
	// entries counts the entries that its history has ever had, with that of this save.
	entries int64
	// changed is set when this save adds an entry.
	changed bool
}

// rowsPerStatement keeps a statement below SQLite's limit of 32766 parameters.
const rowsPerStatement = 1000

// save writes records with a few statements in all, since each statement costs a round trip to
// a server.
func save(tx *sqlx.Tx, records []record) error {
	if err := compareVersions(tx, records); err != nil {
		return err
	}
	args := make([]any, 0, len(records)*12)
	for _, rec := range records {
		r := rec.row
		args = append(args, r.Bundle, r.Version+1, text(r.Queue), text(string(r.Phase)), rec.reason, r.Attempt.Number, text(string(r.SubmissionName)),
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
		return ErrConflict // compareVersions has checked it; this is the swap itself
	}
	return addEntries(tx, records)
}

// saved is what the ledger has for a row.
type saved struct {
	Bundle, Phase, Reason     string
	Version, Attempt, Entries int64
}

// compareVersions checks that each record is the next version of its row, and determines what it
// adds to the history.
func compareVersions(tx *sqlx.Tx, records []record) error {
	bundles := make([]any, len(records))
	var fresh []any
	for i, rec := range records {
		bundles[i] = rec.row.Bundle
		if rec.row.Version == 0 {
			fresh = append(fresh, rec.row.Bundle)
		}
	}
	before, err := selectSaved(tx, `SELECT bundle, version, phase, reason, attempt, entries FROM rows WHERE bundle IN `, bundles)
	if err != nil {
		return err
	}
	// A bundle that was forgotten and is new again continues its history.
	if err := remember(tx, fresh); err != nil {
		return err
	}
	earlier, err := selectSaved(tx, `SELECT bundle, max(n) AS entries FROM history WHERE bundle IN `, fresh, ` GROUP BY bundle`)
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
		rec.changed = !known || old.Phase != text(string(r.Phase)) || old.Reason != rec.reason || old.Attempt != int64(r.Attempt.Number)
		rec.entries = old.Entries
		if rec.changed {
			rec.entries++
		}
	}
	return nil
}

// selectSaved runs a query for some bundles.
func selectSaved(tx *sqlx.Tx, query string, bundles []any, more ...string) (map[string]saved, error) {
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

// text is s in a form that every database accepts: reasons quote the output of other programs,
// and PostgreSQL refuses NUL and invalid UTF-8.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
