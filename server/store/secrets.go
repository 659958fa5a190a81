package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
)

// Secret is an encrypted secret of a user.
type Secret struct {
	UserID string `db:"user_id"`
	Name   string `db:"name"`
	Sealed string `db:"sealed"`
	KeyID  string `db:"key_id"` // of the key that sealed it
	Set    Time   `db:"set_at"`
	// Used is the time at which a worker last got it; zero if none has.
	Used Time `db:"used_at"`
}

// SetSecret adds a secret, or replaces the user's secret of the same name. It fails with ErrTooMany if the user has most
// others already.
func (s *Store) SetSecret(ctx context.Context, secret Secret, most int) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var others int
		err := tx.GetContext(ctx, &others, tx.Rebind(`SELECT COUNT(*) FROM secrets WHERE user_id = ? AND name <> ?`), secret.UserID, secret.Name)
		if err != nil {
			return rowError(err, "set secret")
		}
		if others >= most {
			return fmt.Errorf("set secret: %w", ErrTooMany)
		}
		_, err = tx.NamedExecContext(ctx, `
			INSERT INTO secrets (user_id, name, sealed, key_id, set_at) VALUES (:user_id, :name, :sealed, :key_id, :set_at)
			ON CONFLICT (user_id, name) DO UPDATE SET sealed = excluded.sealed, key_id = excluded.key_id, set_at = excluded.set_at`, secret)
		return rowError(err, "set secret")
	})
}

// Secrets returns a user's secrets, by name.
func (s *Store) Secrets(ctx context.Context, userID string) ([]Secret, error) {
	var secrets []Secret
	err := s.db.SelectContext(ctx, &secrets, s.db.Rebind(`SELECT * FROM secrets WHERE user_id = ? ORDER BY name`), userID)
	return secrets, rowError(err, "list secrets")
}

// SecretsUsed notes that a worker gets these secrets of a user.
func (s *Store) SecretsUsed(ctx context.Context, userID string, names []string, now time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		for _, name := range names {
			if _, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE secrets SET used_at = ? WHERE user_id = ? AND name = ?`), Time{now}, userID, name); err != nil {
				return rowError(err, "note the use of secrets")
			}
		}
		return nil
	})
}

// DeleteSecrets deletes secrets of a user, all or none. It fails with ErrNotFound if one does not exist.
func (s *Store) DeleteSecrets(ctx context.Context, userID string, names []string) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		for _, name := range names {
			result, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM secrets WHERE user_id = ? AND name = ?`), userID, name)
			if err != nil {
				return rowError(err, "delete secret")
			}
			switch n, err := result.RowsAffected(); {
			case err != nil:
				return rowError(err, "delete secret")
			case n == 0:
				return fmt.Errorf("delete secret %s: %w", name, ErrNotFound)
			}
		}
		return nil
	})
}

// OtherSecrets counts the secrets of all users that were not sealed with a key; with an empty id all secrets.
func (s *Store) OtherSecrets(ctx context.Context, keyID string) (n int, err error) {
	err = s.db.GetContext(ctx, &n, s.db.Rebind(`SELECT COUNT(*) FROM secrets WHERE key_id <> ?`), keyID)
	return n, rowError(err, "count secrets")
}

// SealSecrets replaces the encrypted values of all secrets in one transaction. seal returns a secret with another Sealed
// and KeyID, or an error, after which nothing has changed.
func (s *Store) SealSecrets(ctx context.Context, seal func(Secret) (Secret, error)) (n int, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var all []Secret
		if err := tx.SelectContext(ctx, &all, `SELECT * FROM secrets`); err != nil {
			return rowError(err, "seal secrets")
		}
		n = len(all)
		for _, one := range all {
			sealed, err := seal(one)
			if err == nil {
				_, err = tx.NamedExecContext(ctx, `
					UPDATE secrets SET sealed = :sealed, key_id = :key_id WHERE user_id = :user_id AND name = :name`, sealed)
			}
			if err != nil {
				return fmt.Errorf("seal secret %s of user %s: %w", one.Name, one.UserID, err)
			}
		}
		return nil
	})
	return n, err
}
