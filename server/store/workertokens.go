package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
)

// WorkerToken is a token of one worker of a user.
type WorkerToken struct {
	Token    string `db:"token"` // hashed
	UserID   string `db:"user_id"`
	WorkerID string `db:"worker_id"`
	Expires  Time   `db:"expires"`
	// Seconds is the token's validity from its begin. A renewal has at most the same.
	Seconds int64 `db:"seconds"`
	// Latest bounds the renewals: they all expire by then.
	Latest Time `db:"latest"`
	// Renewed is set for a token that the worker has got with another one.
	Renewed bool `db:"renewed"`
	// Start numbers the starts of the worker: it begins with a token of a login, whose Start is 0, and renews it. The
	// tokens of a start have the same number, and those of the next start a larger one, also if all tokens were ended
	// in between.
	Start int64 `db:"start_number"`
	// MadeBy is the id of the program token that made it, and with which it ends; nil for a login.
	MadeBy *string `db:"made_by"`
}

// ErrReplaced means that the worker has begun again with the same token since, as another process.
var ErrReplaced = errors.New("the worker has begun again since")

// AddWorkerToken adds a worker token and removes expired ones of the same user. It fails with ErrTooMany if the
// user has most of them already.
func (s *Store) AddWorkerToken(ctx context.Context, t WorkerToken, now time.Time, most int) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error { return addWorkerToken(ctx, tx, t, now, most) })
}

func addWorkerToken(ctx context.Context, tx *sqlx.Tx, t WorkerToken, now time.Time, most int) error {
	if _, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM worker_tokens WHERE user_id = ? AND expires <= ?`), t.UserID, Time{now}); err != nil {
		return rowError(err, "add worker token")
	}
	var have int
	if err := tx.GetContext(ctx, &have, tx.Rebind(`SELECT COUNT(*) FROM worker_tokens WHERE user_id = ?`), t.UserID); err != nil {
		return rowError(err, "add worker token")
	}
	if have >= most {
		return fmt.Errorf("add worker token: %w", ErrTooMany)
	}
	_, err := tx.NamedExecContext(ctx, `
		INSERT INTO worker_tokens (token, user_id, worker_id, expires, seconds, latest, renewed, start_number, made_by)
		VALUES (:token, :user_id, :worker_id, :expires, :seconds, :latest, CASE WHEN :renewed THEN 1 ELSE 0 END, :start_number, :made_by)`, t)
	return rowError(err, "add worker token")
}

// RenewWorkerToken adds a token with the hash renewed for the worker of the token with the hash old. It is valid for
// as long as the old one was, but not beyond Latest. With a token of a login the worker begins: all tokens of its earlier
// starts are replaced from then on (User.Replaced). They cannot be renewed (ErrReplaced). It fails with ErrNotFound if
// there is no old token any more.
//
// Other renewed tokens of the same start end, and those of earlier starts. The old one stays, because the answer may be
// lost. After a start, those of the start before stay, too, so that its program is told the reason.
//
// One transaction reads the old token and adds the new one. So no token is left by a renewal during
// DeleteWorkerTokens.
func (s *Store) RenewWorkerToken(ctx context.Context, old, renewed string, now time.Time, most int) (WorkerToken, error) {
	var t WorkerToken
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		err := tx.GetContext(ctx, &t, tx.Rebind(`SELECT * FROM worker_tokens WHERE token = ? AND expires > ?`), old, Time{now})
		if err != nil {
			return rowError(err, "renew worker token")
		}
		var newest int64
		err = tx.GetContext(ctx, &newest, tx.Rebind(`SELECT MAX(start_number) FROM worker_tokens WHERE user_id = ? AND worker_id = ?`), t.UserID, t.WorkerID)
		switch {
		case err != nil:
			return rowError(err, "renew worker token")
		case !t.Renewed:
			t.Start = max(newest+1, now.UnixMicro())
		case t.Start < newest:
			return fmt.Errorf("renew worker token: %w", ErrReplaced)
		}
		t.Token, t.Renewed, t.Expires = renewed, true, Time{now.Add(time.Duration(t.Seconds) * time.Second)}
		if t.Latest.Before(t.Expires.Time) {
			t.Expires = t.Latest
		}
		_, err = tx.ExecContext(ctx, tx.Rebind(`
			DELETE FROM worker_tokens WHERE user_id = ? AND worker_id = ? AND renewed = 1 AND token <> ? AND (start_number = ? OR start_number < ?)`),
			t.UserID, t.WorkerID, old, t.Start, newest)
		if err != nil {
			return rowError(err, "renew worker token")
		}
		return addWorkerToken(ctx, tx, t, now, most)
	})
	return t, err
}

// DeleteWorkerTokens ends all tokens of a user's worker.
func (s *Store) DeleteWorkerTokens(ctx context.Context, userID, workerID string) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM worker_tokens WHERE user_id = ? AND worker_id = ?`), userID, workerID)
		return rowError(err, "delete worker tokens")
	})
}
