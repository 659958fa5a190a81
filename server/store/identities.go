package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// Identity is a user as a provider of OpenID Connect knows them. A provider never gives a subject to another person
// (OpenID Connect Core 1.0, section 5.7), but may do so with a name or an e-mail address.
type Identity struct {
	Issuer  string `db:"issuer"`
	Subject string `db:"subject"`
	UserID  string `db:"user_id"`
	Linked  Time   `db:"linked"`
}

// Link makes a user sign in by an identity. It fails with ErrExists if the identity is a user's already, and with
// ErrNotFound if there is no such user.
func (s *Store) Link(ctx context.Context, i Identity) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error { return link(ctx, tx, i) })
}

func link(ctx context.Context, tx *sqlx.Tx, i Identity) error {
	result, err := tx.ExecContext(ctx, tx.Rebind(`
		INSERT INTO identities (issuer, subject, user_id, linked) SELECT ?, ?, id, ? FROM users WHERE id = ?`),
		i.Issuer, i.Subject, i.Linked.micros(), i.UserID)
	if sqldb.IsUnique(err) {
		return fmt.Errorf("link %s of %s: %w", i.Subject, i.Issuer, ErrExists)
	}
	if err != nil {
		return rowError(err, "link a user")
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, fmt.Errorf("link user %s: %w", i.UserID, ErrNotFound))
	}
	return nil
}

// AddLinkedUser adds a user who signs in by an identity. It fails with ErrExists if the id or the identity is taken,
// or if another user has, or had, the name.
func (s *Store) AddLinkedUser(ctx context.Context, u User, i Identity) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if err := checkFormer(ctx, tx, u); err != nil {
			return fmt.Errorf("add user %s: %w", u.Name, err)
		}
		if err := addUser(ctx, tx, u); err != nil {
			return err
		}
		i.UserID = u.ID
		return link(ctx, tx, i)
	})
}

// Unlink ends all identities of a user, who cannot sign in by a provider any more. It returns their number.
func (s *Store) Unlink(ctx context.Context, userID string) (n int64, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		result, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM identities WHERE user_id = ?`), userID)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return rowError(err, "unlink user "+userID)
	})
	return n, err
}

// Identities returns those of a user, sorted.
func (s *Store) Identities(ctx context.Context, userID string) ([]Identity, error) {
	var all []Identity
	err := s.db.SelectContext(ctx, &all, s.db.Rebind(`SELECT * FROM identities WHERE user_id = ? ORDER BY issuer, subject`), userID)
	return all, rowError(err, "list identities of user "+userID)
}

// UserOfIdentity returns the user of an identity.
func (s *Store) UserOfIdentity(ctx context.Context, issuer, subject string) (User, error) {
	var u User
	err := s.db.GetContext(ctx, &u, s.db.Rebind(`
		SELECT users.* FROM identities i JOIN users ON users.id = i.user_id WHERE i.issuer = ? AND i.subject = ?`), issuer, subject)
	return u, rowError(err, "get user of identity")
}

// UsersByEmail returns at most ten users with an e-mail address, which is compared without regard to case.
func (s *Store) UsersByEmail(ctx context.Context, email string) ([]User, error) {
	var found []User
	err := s.db.SelectContext(ctx, &found, s.db.Rebind(`SELECT * FROM users WHERE email <> '' AND lower(email) = lower(?) ORDER BY id LIMIT 10`), email)
	return found, rowError(err, "get users by e-mail address")
}
