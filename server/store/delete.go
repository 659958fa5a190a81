package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// DeleteBundles deletes bundles, their items on worksheets and their contents, some bundles in each
// transaction. It calls check for each bundle in the transaction that deletes it, and stops with
// check's error. It ignores bundles that do not exist. No new bundle can have a deleted bundle's
// uuid.
func (s *Store) DeleteBundles(ctx context.Context, uuids []string, now Time, check func(Bundle) error) error {
	for part := range slices.Chunk(uuids, changedAtOnce) {
		var gone map[string]Bundle
		err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
			if gone, err = getBundles(ctx, tx, part); err != nil {
				return err
			}
			for _, uuid := range slices.Sorted(maps.Keys(gone)) {
				if err := check(gone[uuid]); err != nil {
					return err
				}
			}
			return deleteRows(ctx, tx, gone, now)
		})
		if err != nil {
			return err
		}
		for _, uuid := range slices.Sorted(maps.Keys(gone)) {
			b := gone[uuid]
			note(ctx, b.event(codalab.ActionDeleted, codalab.EventDetails{}))
			s.changed(b)
			if err := s.RemoveContents(b.Contents); err != nil {
				return err // Sweep removes them at the next start
			}
		}
	}
	return nil
}

// deleteRows deletes bundles in a transaction.
func deleteRows(ctx context.Context, tx *sqlx.Tx, gone map[string]Bundle, now Time) error {
	type deleted struct {
		UUID    string `db:"uuid"`
		Deleted Time   `db:"deleted"`
	}
	if len(gone) == 0 {
		return nil
	}
	var rows []deleted
	used := charges{}
	for uuid, b := range gone {
		rows = append(rows, deleted{uuid, now})
		used.add(b.OwnerID, codalab.Space{}.Minus(b.Charge()))
	}
	for _, statement := range []string{`DELETE FROM worksheet_items WHERE bundle_uuid IN (?)`, `DELETE FROM bundles WHERE uuid IN (?)`} {
		query, args, err := sqlx.In(statement, slices.Collect(maps.Keys(gone)))
		if err == nil {
			_, err = tx.ExecContext(ctx, tx.Rebind(query), args...)
		}
		if err != nil {
			return fmt.Errorf("delete bundles: %w", err)
		}
	}
	if err := insertRows(ctx, tx, `INSERT INTO deleted_bundles (uuid, deleted) VALUES (:uuid, :deleted)`, rows); err != nil {
		return fmt.Errorf("delete bundles: %w", err)
	}
	return used.write(ctx, tx)
}

// mostUsed bounds a user's counters, far below an int64's end, after which SQLite would count with
// floating-point numbers.
const mostUsed = 1 << 60

// addCharge adds to a user's disk use, whose numbers stay between 0 and mostUsed.
func addCharge(ctx context.Context, tx *sqlx.Tx, userID string, more codalab.Space) error {
	if more == (codalab.Space{}) {
		return nil
	}
	_, err := tx.ExecContext(ctx, tx.Rebind(`
		UPDATE users SET
			disk_used = CASE WHEN disk_used + ? < 0 THEN 0 WHEN disk_used + ? > ? THEN ? ELSE disk_used + ? END,
			entries_used = CASE WHEN entries_used + ? < 0 THEN 0 ELSE entries_used + ? END
		WHERE id = ?`),
		more.Bytes, more.Bytes, mostUsed, mostUsed, more.Bytes, more.Entries, more.Entries, userID)
	return rowError(err, "count disk use of user "+userID)
}
