package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Entry is one decision of a bundle's history.
type Entry struct {
	Bundle string `json:"bundle"`
	// N counts the bundle's entries from 1. A gap means that entries are left out.
	N int64 `json:"n"`
	// Version is that of the saved row. It starts again from 1 when a bundle is claimed again
	// after it was forgotten.
	Version int64 `json:"version"`
	// At is the time of the decision.
	At      time.Time    `json:"at"`
	Phase   plan.Phase   `json:"phase"`
	Attempt int          `json:"attempt"`
	Job     sbatch.JobID `json:"job,omitempty"`
	Reason  string       `json:"reason"`
}

// What is kept of a history.
const (
	// A bundle's first entries show its beginning, the last ones its present state.
	keepFirst, keepLast = 16, 48
	// keepFor is how long it is kept after its row's last decision.
	keepFor = 30 * 24 * time.Hour
)

// slot is the place of the n-th entry of a bundle.
func slot(n int64) int64 {
	if n <= keepFirst {
		return n
	}
	return keepFirst + 1 + (n-keepFirst-1)%keepLast
}

// decided is when a row was last decided.
func decided(r plan.Row) time.Time {
	if r.DecidedAt.IsZero() { // saved by a version without DecidedAt
		return r.PhaseSince
	}
	return r.DecidedAt
}

// nanoseconds is a time in the history's form.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// addEntries adds the entries of the records that changed.
func addEntries(tx *sqlx.Tx, records []record) error {
	args, n := []any(nil), 0
	for _, rec := range records {
		if !rec.changed {
			continue
		}
		r := rec.row
		args = append(args, r.Bundle, slot(rec.entries), rec.entries, r.Version+1, nanoseconds(decided(r)),
			text(string(r.Phase)), r.Attempt.Number, int64(r.Job.ID), rec.reason)
		n++
	}
	if n == 0 {
		return nil
	}
	_, err := exec(tx, `
		INSERT INTO history (bundle, slot, n, version, at, phase, attempt, job, reason) VALUES `+values(n, 9)+`
		ON CONFLICT (bundle, slot) DO UPDATE SET n = excluded.n, version = excluded.version, at = excluded.at,
			phase = excluded.phase, attempt = excluded.attempt, job = excluded.job, reason = excluded.reason`, args...)
	return err
}

// forgetBundle notes that a bundle no longer has a row, and removes the histories of bundles
// that were forgotten long ago.
func forgetBundle(tx *sqlx.Tx, bundle string, now time.Time) error {
	_, err := exec(tx, `INSERT INTO forgotten (bundle, at) VALUES (?, ?) ON CONFLICT (bundle) DO UPDATE SET at = excluded.at`,
		bundle, nanoseconds(now))
	if err != nil {
		return err
	}
	limit := nanoseconds(now.Add(-keepFor))
	// A bundle that was claimed again has a row, and will be forgotten again.
	_, err = exec(tx, `
		DELETE FROM history WHERE bundle IN (SELECT bundle FROM forgotten WHERE at < ?)
			AND NOT EXISTS (SELECT 1 FROM rows WHERE rows.bundle = history.bundle)`, limit)
	if err != nil {
		return err
	}
	_, err = exec(tx, `DELETE FROM forgotten WHERE at < ?`, limit)
	return err
}

// History returns the kept decisions of a bundle, oldest first, also of one that no longer has
// a row. An unknown bundle has none.
func (r *Reader) History(ctx context.Context, bundle string) ([]Entry, error) {
	var found []struct {
		Bundle, Phase, Reason        string
		N, Version, At, Attempt, Job int64
	}
	err := r.db.SelectContext(ctx, &found, r.db.Rebind(`
		SELECT bundle, n, version, at, phase, attempt, job, reason FROM history WHERE bundle = ? ORDER BY n`), bundle)
	if err != nil {
		return nil, fmt.Errorf("read history of %s: %w", bundle, err)
	}
	entries := make([]Entry, len(found))
	for i, e := range found {
		entries[i] = Entry{
			Bundle: e.Bundle, N: e.N, Version: e.Version, At: time.Unix(0, e.At).UTC(), Phase: plan.Phase(e.Phase),
			Attempt: int(e.Attempt), Job: sbatch.JobID(e.Job), Reason: e.Reason,
		}
	}
	return entries, nil
}
