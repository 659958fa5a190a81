package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Entry is one decision of a bundle's history.
type Entry struct {
	Bundle string `json:"bundle"`
	// N counts the bundle's entries from 1. A gap shows that entries were removed.
	N int64 `json:"n"`
	// Version is the saved row's. It starts again from 1 when a bundle is claimed again after it was
	// forgotten.
	Version int64 `json:"version"`
	// At is the time of the decision.
	At      time.Time    `json:"at"`
	Phase   plan.Phase   `json:"phase"`
	Attempt int          `json:"attempt"`
	Job     sbatch.JobID `json:"job,omitempty"`
	Reason  string       `json:"reason"`
}

// DefaultKeepHistory is the default of Ledger.KeepHistory. With a hundred thousand bundles a day, each of
// which keeps its row for a day, the ledger takes less than a gigabyte.
const DefaultKeepHistory = 14 * 24 * time.Hour

// A history keeps the bundle's first entries, which show its beginning, and the newest ones.
const keepFirst, keepLast = 16, 48

// slot returns the place of the n-th entry of a bundle.
func slot(n int64) int64 {
	if n <= keepFirst {
		return n
	}
	return keepFirst + 1 + (n-keepFirst-1)%keepLast
}

// nanoseconds returns a time as the history stores it.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// addEntries adds the entries of the records that changed.
func addEntries(tx *sqlx.Tx, records []record) error {
	var added []entry
	for _, rec := range records {
		if r := rec.row; rec.changed {
			added = append(added, entry{
				Bundle: r.Bundle, N: rec.entries, Version: r.Version + 1, At: nanoseconds(r.DecidedAt),
				Phase: validText(string(r.Phase)), Attempt: int64(r.Attempt.Number), Job: int64(r.Job.ID), Reason: rec.reason,
			})
		}
	}
	return insertEntries(tx, added)
}

func insertEntries(tx *sqlx.Tx, entries []entry) error {
	if len(entries) == 0 {
		return nil
	}
	args := make([]any, 0, len(entries)*9)
	for _, e := range entries {
		args = append(args, e.Bundle, slot(e.N), e.N, e.Version, e.At, e.Phase, e.Attempt, e.Job, e.Reason)
	}
	_, err := exec(tx, `
		INSERT INTO history (bundle, slot, n, version, at, phase, attempt, job, reason) VALUES `+values(len(entries), 9)+`
		ON CONFLICT (bundle, slot) DO UPDATE SET n = excluded.n, version = excluded.version, at = excluded.at,
			phase = excluded.phase, attempt = excluded.attempt, job = excluded.job, reason = excluded.reason`, args...)
	return err
}

// forgetBundle packs the history of a bundle that no longer has a row. It removes the histories of bundles
// that were forgotten longer than keep before now.
func forgetBundle(tx *sqlx.Tx, bundle string, now time.Time, keep time.Duration) error {
	var entries []entry
	if err := tx.Select(&entries, tx.Rebind(selectEntries), bundle); err != nil {
		return fmt.Errorf("read history: %w", err)
	}
	encoded, err := json.Marshal(entries)
	if err != nil {
		return fmt.Errorf("pack history: %w", err)
	}
	packed, err := packs.pack(encoded)
	if err != nil {
		return err
	}
	for _, s := range []struct {
		statement string
		args      []any
	}{
		{`INSERT INTO forgotten (bundle, at, entries) VALUES (?, ?, ?)
			ON CONFLICT (bundle) DO UPDATE SET at = excluded.at, entries = excluded.entries`, []any{bundle, nanoseconds(now), packed}},
		{`DELETE FROM history WHERE bundle = ?`, []any{bundle}},
		{`DELETE FROM forgotten WHERE at < ?`, []any{nanoseconds(now.Add(-keep))}},
		{`DELETE FROM charges WHERE ended < ?`, []any{nanoseconds(now.Add(-keep))}},
	} {
		if _, err := exec(tx, s.statement, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// restoreHistories unpacks the histories of forgotten bundles that get a row again.
func restoreHistories(tx *sqlx.Tx, bundles []any) error {
	if len(bundles) == 0 {
		return nil
	}
	var found []struct{ Bundle, Entries string }
	query := `SELECT bundle, entries FROM forgotten WHERE bundle IN ` + values(1, len(bundles))
	if err := tx.Select(&found, tx.Rebind(query), bundles...); err != nil {
		return fmt.Errorf("read history: %w", err)
	}
	for _, f := range found {
		entries, err := unpackEntries(f.Entries)
		if err != nil {
			return err
		}
		for i := range entries {
			entries[i].Bundle = f.Bundle
		}
		if err := insertEntries(tx, entries); err != nil {
			return err
		}
		if _, err := exec(tx, `DELETE FROM forgotten WHERE bundle = ?`, f.Bundle); err != nil {
			return err
		}
	}
	return nil
}

// entry is an Entry as the ledger stores it. A packed entry, and one from selectEntries, lacks the bundle.
type entry struct {
	Bundle                       string
	N, Version, At, Attempt, Job int64
	Phase, Reason                string
}

const selectEntries = `SELECT n, version, at, phase, attempt, job, reason FROM history WHERE bundle = ? ORDER BY n`

// MarshalJSON writes the entry as a list, because that is short.
func (e entry) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal([]any{e.N, e.Version, e.At, e.Phase, e.Attempt, e.Job, e.Reason})
	if err != nil {
		return nil, fmt.Errorf("write entry: %w", err)
	}
	return data, nil
}

// UnmarshalJSON reads the output of MarshalJSON.
func (e *entry) UnmarshalJSON(data []byte) error {
	fields := []any{&e.N, &e.Version, &e.At, &e.Phase, &e.Attempt, &e.Job, &e.Reason}
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("read entry: %w", err)
	}
	return nil
}

func unpackEntries(packed string) ([]entry, error) {
	var entries []entry
	data, err := packs.unpack(packed)
	if err == nil {
		err = json.Unmarshal(data, &entries)
	}
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return entries, nil
}

// History returns the kept decisions of a bundle, oldest first, even if the bundle no longer has a row. It
// returns none for an unknown bundle.
func (r *Reader) History(ctx context.Context, bundle string) ([]Entry, error) {
	var found []entry
	if err := r.db.SelectContext(ctx, &found, r.db.Rebind(selectEntries), bundle); err != nil {
		return nil, fmt.Errorf("read history of %s: %w", bundle, err)
	}
	if len(found) == 0 {
		var packed []string
		err := r.db.SelectContext(ctx, &packed, r.db.Rebind(`SELECT entries FROM forgotten WHERE bundle = ?`), bundle)
		if err == nil && len(packed) > 0 {
			found, err = unpackEntries(packed[0])
		}
		if err != nil {
			return nil, fmt.Errorf("read history of %s: %w", bundle, err)
		}
	}
	entries := make([]Entry, len(found))
	for i, e := range found {
		entries[i] = Entry{
			Bundle: bundle, N: e.N, Version: e.Version, At: time.Unix(0, e.At).UTC(), Phase: plan.Phase(e.Phase),
			Attempt: int(e.Attempt), Job: sbatch.JobID(e.Job), Reason: e.Reason,
		}
	}
	return entries, nil
}
