package store

import (
	"context"

	"github.com/jmoiron/sqlx"
)

// SeenQueue is the last check-in of a queue of a batch system, as JSON. GroupUUID is that of the group that it serves;
// empty for none.
type SeenQueue struct {
	UserID    string `db:"user_id"`
	WorkerID  string `db:"worker_id"`
	GroupUUID string `db:"group_uuid"`
	CheckIn   string `db:"check_in"`
	Seen      Time   `db:"seen"`
}

// SeenQueues returns the queues that SetSeenQueues has set, but not those of users who are gone.
func (s *Store) SeenQueues(ctx context.Context) ([]SeenQueue, error) {
	var queues []SeenQueue
	err := s.db.SelectContext(ctx, &queues, `
		SELECT * FROM seen_queues WHERE user_id IN (SELECT id FROM users) ORDER BY user_id, worker_id`)
	return queues, rowError(err, "list queues")
}

// SetSeenQueues replaces the queues.
func (s *Store) SetSeenQueues(ctx context.Context, queues []SeenQueue) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM seen_queues`); err != nil {
			return rowError(err, "set queues")
		}
		for _, q := range queues {
			_, err := tx.NamedExecContext(ctx, `
				INSERT INTO seen_queues (user_id, worker_id, group_uuid, check_in, seen) VALUES (:user_id, :worker_id, :group_uuid, :check_in, :seen)`, q)
			if err != nil {
				return rowError(err, "set queues")
			}
		}
		return nil
	})
}
