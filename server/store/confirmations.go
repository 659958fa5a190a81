package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
)

// Confirmation is an e-mail address that its owner has not confirmed yet: the new one of a user, or that of a person who signs
// up.
type Confirmation struct {
	Code    string `db:"code"`    // hashed
	UserID  string `db:"user_id"` // empty for a person who signs up
	Email   string `db:"email"`
	Expires Time   `db:"expires"`
	// The rest is of a person who signs up.
	Name        string `db:"name"`
	Password    string `db:"password"` // hashed
	FirstName   string `db:"first_name"`
	LastName    string `db:"last_name"`
	Affiliation string `db:"affiliation"`
}

// maxSignUps bounds the persons who have signed up and not confirmed their address.
const maxSignUps = 10_000

// AddConfirmation adds a confirmation. It replaces the user's earlier one, and drops those that have expired. It fails with
// ErrTooMany if too many persons have signed up.
func (s *Store) AddConfirmation(ctx context.Context, c Confirmation, now time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		err := doAll(ctx, tx, "add confirmation", []step{
			{`DELETE FROM confirmations WHERE expires <= ? OR user_id = ?`, []any{Time{now}, c.UserID}},
			{`INSERT INTO confirmations (code, user_id, email, expires, name, password, first_name, last_name, affiliation)
				VALUES (?, NULLIF(?, ''), ?, ?, ?, ?, ?, ?, ?)`, []any{
				c.Code, c.UserID, c.Email, c.Expires, c.Name, c.Password, c.FirstName, c.LastName, c.Affiliation,
			}},
		})
		if err != nil || c.UserID != "" {
			return err
		}
		var n int
		err = tx.GetContext(ctx, &n, `SELECT count(*) FROM confirmations WHERE user_id IS NULL`)
		if err == nil && n > maxSignUps {
			err = ErrTooMany
		}
		return rowError(err, "add confirmation")
	})
}

// Confirmation returns the one with a valid code, of which code is the hash.
func (s *Store) Confirmation(ctx context.Context, code string, now time.Time) (Confirmation, error) {
	var c Confirmation
	err := s.db.GetContext(ctx, &c, s.db.Rebind(`
		SELECT code, COALESCE(user_id, '') AS user_id, email, expires, name, password, first_name, last_name, affiliation
		FROM confirmations WHERE code = ? AND expires > ?`), code, Time{now})
	return c, rowError(err, "get confirmation")
}

// Confirm ends a confirmation, and makes its address the user's; u is a new user if the confirmation is of a person who signs up.
// A change of the address ends the user's one-time codes for a new password, of which one may have gone to the old address.
// It fails with ErrNotFound if the confirmation is not valid any more, and with ErrExists if another user has the address or
// the name, or had the name before.
func (s *Store) Confirm(ctx context.Context, c Confirmation, u User, now time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		result, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM confirmations WHERE code = ? AND expires > ?`), c.Code, Time{now})
		if err != nil {
			return rowError(err, "confirm address")
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("confirm address: %w", ErrNotFound))
		}
		var others int
		err = tx.GetContext(ctx, &others, tx.Rebind(`SELECT count(*) FROM users WHERE email <> '' AND lower(email) = lower(?) AND id <> ?`), c.Email, u.ID)
		if err == nil && others > 0 {
			err = ErrExists
		}
		if err != nil {
			return rowError(err, "confirm address")
		}
		if c.UserID == "" {
			if err := checkFormer(ctx, tx, u); err != nil {
				return fmt.Errorf("add user %s: %w", u.Name, err)
			}
			if err := addUser(ctx, tx, u); err != nil {
				return err
			}
			_, err = tx.NamedExecContext(ctx, `UPDATE users SET first_name = :first_name, last_name = :last_name, affiliation = :affiliation WHERE id = :id`, u)
			if err != nil {
				return rowError(err, "add user "+u.Name)
			}
		}
		return doAll(ctx, tx, "confirm address", []step{
			{`UPDATE users SET email = ? WHERE id = ?`, []any{c.Email, u.ID}},
		}, endCodes(u.ID))
	})
}
