package store

import (
	"context"
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
}

// AddWorkerToken adds a worker token and removes expired ones of the same user. It fails with ErrTooMany if the
// user has most of them already.
func (s *Store) AddWorkerToken(ctx context.Context, t WorkerToken, now time.Time, most int) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
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
			INSERT INTO worker_tokens (token, user_id, worker_id, expires) VALUES (:token, :user_id, :worker_id, :expires)`, t)
		return rowError(err, "add worker token")
	})
}
