package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// Notice is a user's wish for a mail when some bundles have ended.
type Notice struct {
	ID     string `db:"id"`
	UserID string `db:"user_id"`
	Digest string `db:"digest"` // of the bundles; AddNotice sets it
	// Bundles is the number of bundles when the notice was made. Some may be removed since.
	Bundles int  `db:"bundles"`
	Made    Time `db:"made"`
	// Tries is the number of mails that could not be sent, Problem the last reason, and NextTry the time of the next try.
	Tries   int    `db:"tries"`
	NextTry Time   `db:"next_try"`
	Problem string `db:"problem"`
	// Done is the time at which the mail was sent, or given up; zero before that.
	Done Time `db:"done"`
}

// NoticeBounds bound the notices of a user. Waiting are those that are not done, and Since is the begin of the time in
// which the user may make InTime of them.
type NoticeBounds struct {
	Waiting, InTime int
	Since           time.Time
}

// againAfter is the time after which a wish whose mail was given up can be made again. A loop of wishes hammers no mail server.
const againAfter = 10 * time.Minute

// AddNotice adds a notice for bundles that exist. If the user has one for the same bundles, it returns that. It fails with
// ErrTooMany at a bound, and with ErrNotFound if a bundle does not exist any more.
func (s *Store) AddNotice(ctx context.Context, n Notice, uuids []string, most NoticeBounds) (Notice, error) {
	uuids = slices.Compact(slices.Sorted(slices.Values(uuids)))
	sum := sha256.Sum256([]byte(strings.Join(uuids, "\n")))
	n.Digest, n.Bundles = hex.EncodeToString(sum[:]), len(uuids)
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var have Notice
		err := tx.GetContext(ctx, &have, tx.Rebind(`SELECT * FROM notices WHERE user_id = ? AND digest = ?`), n.UserID, n.Digest)
		switch {
		case err == nil && (have.Done.IsZero() || have.Problem == "" || n.Made.Sub(have.Done.Time) < againAfter):
			n = have
			return nil
		case err == nil: // it was given up, and this is another wish
			if _, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM notices WHERE id = ?`), have.ID); err != nil {
				return rowError(err, "add notice")
			}
		case !errors.Is(err, sql.ErrNoRows):
			return rowError(err, "add notice")
		}
		return addNotice(ctx, tx, n, uuids, most)
	})
	if sqldb.IsUnique(err) { // another request has just made it
		return s.AddNotice(ctx, n, uuids, most)
	}
	return n, err
}

func addNotice(ctx context.Context, tx *sqlx.Tx, n Notice, uuids []string, most NoticeBounds) error {
	var have struct {
		Waiting int `db:"waiting"`
		Made    int `db:"made"`
	}
	err := tx.GetContext(ctx, &have, tx.Rebind(`SELECT COALESCE(SUM(CASE WHEN done = 0 THEN 1 ELSE 0 END), 0) AS waiting,
		COALESCE(SUM(CASE WHEN made > ? THEN 1 ELSE 0 END), 0) AS made FROM notices WHERE user_id = ?`), Time{Time: most.Since}, n.UserID)
	switch {
	case err != nil:
		return rowError(err, "count notices")
	case have.Waiting >= most.Waiting || have.Made >= most.InTime:
		return fmt.Errorf("add notice: %w", ErrTooMany)
	}
	_, err = tx.NamedExecContext(ctx, `INSERT INTO notices (id, user_id, digest, bundles, made) VALUES (:id, :user_id, :digest, :bundles, :made)`, n)
	if err != nil {
		return fmt.Errorf("add notice: %w", err)
	}
	for part := range slices.Chunk(uuids, inOneStatement) {
		query, args, err := sqlx.In(`INSERT INTO notice_bundles (notice_id, bundle_uuid) SELECT ?, uuid FROM bundles WHERE uuid IN (?)`, n.ID, part)
		if err != nil {
			return fmt.Errorf("expand a list: %w", err)
		}
		done, err := tx.ExecContext(ctx, tx.Rebind(query), args...)
		if err != nil {
			return rowError(err, "add bundles of notice")
		}
		if added, err := done.RowsAffected(); err != nil || int(added) < len(part) {
			return errors.Join(err, fmt.Errorf("add bundles of notice: %w", ErrNotFound))
		}
	}
	return nil
}

// WaitingNotices returns the notices of a user that are not done, the oldest first.
func (s *Store) WaitingNotices(ctx context.Context, userID string) ([]Notice, error) {
	var found []Notice
	err := s.db.SelectContext(ctx, &found, s.db.Rebind(`SELECT * FROM notices WHERE user_id = ? AND done = 0 ORDER BY made, id`), userID)
	return found, rowError(err, "list notices")
}

// AnyNotice reports whether any notice is not done.
func (s *Store) AnyNotice(ctx context.Context) (bool, error) {
	var n int
	err := s.db.GetContext(ctx, &n, `SELECT COUNT(*) FROM (SELECT 1 FROM notices WHERE done = 0 LIMIT 1) AS one`)
	return n > 0, rowError(err, "find notices")
}

// DueNotices returns notices that are not done, whose bundles have all ended or were removed, and whose next try is due.
func (s *Store) DueNotices(ctx context.Context, now time.Time) ([]Notice, error) {
	var found []Notice
	err := s.db.SelectContext(ctx, &found, s.db.Rebind(`SELECT * FROM notices n WHERE done = 0 AND next_try <= ? AND NOT EXISTS (
		SELECT 1 FROM notice_bundles m JOIN bundles b ON b.uuid = m.bundle_uuid
		WHERE m.notice_id = n.id AND b.state NOT IN ('ready', 'failed', 'killed')) ORDER BY next_try, made, id LIMIT 100`), Time{Time: now})
	return found, rowError(err, "find due notices")
}

// NoticeBundles returns the uuids of the bundles of a notice that are not removed.
func (s *Store) NoticeBundles(ctx context.Context, id string) ([]string, error) {
	var found []string
	err := s.db.SelectContext(ctx, &found, s.db.Rebind(`SELECT bundle_uuid FROM notice_bundles WHERE notice_id = ? ORDER BY bundle_uuid`), id)
	return found, rowError(err, "list bundles of notice")
}

// NoteNotice writes what became of a try: Tries, NextTry, Problem and Done. A notice that was removed stays removed.
func (s *Store) NoteNotice(ctx context.Context, n Notice) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.NamedExecContext(ctx, `UPDATE notices SET tries = :tries, next_try = :next_try, problem = :problem, done = :done WHERE id = :id`, n)
		if err == nil && !n.Done.IsZero() { // the digest is enough
			_, err = tx.NamedExecContext(ctx, `DELETE FROM notice_bundles WHERE notice_id = :id`, n)
		}
		return rowError(err, "note notice")
	})
}

// DeleteNotices removes notices of a user that are not done. It fails with ErrNotFound, and removes none, if one of them
// is not there.
func (s *Store) DeleteNotices(ctx context.Context, userID string, ids []string) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		for _, id := range ids {
			done, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM notices WHERE user_id = ? AND id = ? AND done = 0`), userID, id)
			if err != nil {
				return rowError(err, "remove notice")
			}
			if n, err := done.RowsAffected(); err != nil || n == 0 {
				return errors.Join(err, fmt.Errorf("remove notice %s: %w", id, ErrNotFound))
			}
		}
		return nil
	})
}

// ForgetNotices removes the notices that were done before a time.
func (s *Store) ForgetNotices(ctx context.Context, before time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM notices WHERE done > 0 AND done < ?`), Time{Time: before})
		return rowError(err, "forget notices")
	})
}
