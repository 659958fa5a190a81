package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// Scope is a part of the bundles that a worker account's workers take: those of one owner, or those
// of a group's members. A zero Scope is everybody's bundles.
type Scope struct {
	OwnerID   string `db:"owner_id"`
	GroupUUID string `db:"group_uuid"`
}

// SetScopes makes a user a worker account for these scopes, or an ordinary user if there are none. It ends the user's codes for a
// new password and for an e-mail address: no mail opens a worker account.
func (s *Store) SetScopes(ctx context.Context, userID string, scopes []Scope) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE users SET is_worker = ? WHERE id = ?`), truth(len(scopes) > 0), userID); err != nil {
			return fmt.Errorf("set scopes of user %s: %w", userID, err)
		}
		if _, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM worker_scopes WHERE user_id = ?`), userID); err != nil {
			return fmt.Errorf("set scopes of user %s: %w", userID, err)
		}
		for _, scope := range scopes {
			_, err := tx.ExecContext(ctx, tx.Rebind(`INSERT INTO worker_scopes (user_id, owner_id, group_uuid) VALUES (?, ?, ?)`),
				userID, scope.OwnerID, scope.GroupUUID)
			if err != nil {
				return fmt.Errorf("set scopes of user %s: %w", userID, err)
			}
		}
		return doAll(ctx, tx, "set scopes of user "+userID, endCodes(userID))
	})
}

// Scopes returns the scopes of a worker account; none for an ordinary user.
func (s *Store) Scopes(ctx context.Context, userID string) ([]Scope, error) {
	var scopes []Scope
	err := s.db.SelectContext(ctx, &scopes, s.db.Rebind(`
		SELECT owner_id, group_uuid FROM worker_scopes WHERE user_id = ? ORDER BY owner_id, group_uuid`), userID)
	return scopes, rowError(err, "list scopes of user "+userID)
}

// WorkerInputs returns those of these bundles that are inputs of runs which a user's workers have. Only workers that
// mine accepts count.
func (s *Store) WorkerInputs(ctx context.Context, userID string, mine func(worker string) bool, uuids []string) ([]string, error) {
	found, err := selectIn[struct {
		Input  string `db:"parent_uuid"`
		Worker string `db:"worker_id"`
	}](ctx, s.db, uuids, `
		SELECT DISTINCT d.parent_uuid, c.worker_id FROM dependencies d JOIN bundles c ON c.uuid = d.child_uuid
		WHERE d.parent_uuid IN (?) AND c.worker_user = ? AND c.state NOT IN ('ready', 'failed', 'killed')`, userID)
	var inputs []string
	for _, one := range found {
		if mine(one.Worker) {
			inputs = append(inputs, one.Input)
		}
	}
	return inputs, rowError(err, "list inputs")
}

// InputOwners returns the owners of those runs of a user's workers that have a bundle as an input.
func (s *Store) InputOwners(ctx context.Context, userID, uuid string) ([]string, error) {
	var owners []string
	err := s.db.SelectContext(ctx, &owners, s.db.Rebind(`
		SELECT DISTINCT c.owner_id FROM dependencies d JOIN bundles c ON c.uuid = d.child_uuid
		WHERE d.parent_uuid = ? AND c.worker_user = ? AND c.state NOT IN ('ready', 'failed', 'killed') ORDER BY c.owner_id`), uuid, userID)
	return owners, rowError(err, "list owners of runs with input "+uuid)
}
