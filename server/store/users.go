package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// RootID is the id of the root user, who has all permissions.
const RootID = "0"

// User is a person, or a program that acts as one.
type User struct {
	ID       string `db:"id"`
	Name     string `db:"name"`
	Password string `db:"password"` // hashed
	// Joined is when the user was added.
	Joined Time `db:"joined"`
	// TimeQuota is in seconds, DiskQuota in bytes.
	TimeQuota        int64 `db:"time_quota"`
	DiskQuota        int64 `db:"disk_quota"`
	ParallelRunQuota int64 `db:"parallel_run_quota"`
	TimeUsed         int64 `db:"time_used"`
	DiskUsed         int64 `db:"disk_used"`
}

// Root reports whether the user is the root user.
func (u User) Root() bool { return u.ID == RootID }

// AddUser adds a user; ErrExists if the id or the name is taken.
func (s *Store) AddUser(ctx context.Context, u User) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.NamedExecContext(ctx, `
			INSERT INTO users (id, name, password, joined, time_quota, disk_quota, parallel_run_quota)
			VALUES (:id, :name, :password, :joined, :time_quota, :disk_quota, :parallel_run_quota)`, u)
		if sqldb.IsUnique(err) {
			return fmt.Errorf("add user %s: %w", u.Name, ErrExists)
		}
		return rowError(err, "add user "+u.Name)
	})
}

// User returns the user with this id or name.
func (s *Store) User(ctx context.Context, idOrName string) (User, error) {
	var u User
	err := s.db.GetContext(ctx, &u, s.db.Rebind(`SELECT * FROM users WHERE id = ? OR name = ? ORDER BY id = ? DESC LIMIT 1`),
		idOrName, idOrName, idOrName)
	return u, rowError(err, "get user "+idOrName)
}

// Users returns all users, by name.
func (s *Store) Users(ctx context.Context) ([]User, error) {
	var users []User
	err := s.db.SelectContext(ctx, &users, `SELECT * FROM users ORDER BY name`)
	return users, rowError(err, "list users")
}

// AddDiskUsed adds bytes to the size of a bundle and to its owner's disk use, during an
// upload. The end of the upload sets both to the true size.
func (s *Store) AddDiskUsed(ctx context.Context, bundleUUID string, bytes int64) error {
	_, err := s.Change(ctx, bundleUUID, func(b *Bundle) error {
		b.SetDataSize(b.DataSize + bytes)
		return nil
	})
	return err
}

// Grant is a pair of tokens of a user, as hashes.
type Grant struct {
	Access         string `db:"access"`
	Refresh        string `db:"refresh"`
	Client         string `db:"client"`
	UserID         string `db:"user_id"`
	AccessExpires  Time   `db:"access_expires"`
	RefreshExpires Time   `db:"refresh_expires"`
}

// AddGrant adds a grant and removes expired ones of the same user and client.
func (s *Store) AddGrant(ctx context.Context, g Grant, now time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`
			DELETE FROM grants WHERE user_id = ? AND client = ? AND access_expires < ? AND refresh_expires < ?`),
			g.UserID, g.Client, Time{now}, Time{now})
		if err == nil {
			_, err = tx.NamedExecContext(ctx, `
				INSERT INTO grants (access, refresh, client, user_id, access_expires, refresh_expires)
				VALUES (:access, :refresh, :client, :user_id, :access_expires, :refresh_expires)`, g)
		}
		return rowError(err, "add grant")
	})
}

// UserOfToken returns the user of the access token with this hash.
func (s *Store) UserOfToken(ctx context.Context, access string, now time.Time) (User, error) {
	var u User
	err := s.db.GetContext(ctx, &u, s.db.Rebind(`
		SELECT users.* FROM grants JOIN users ON users.id = grants.user_id
		WHERE grants.access = ? AND grants.access_expires > ?`), access, Time{now})
	return u, rowError(err, "get user of token")
}

// UseRefresh returns the user of the refresh token with this hash and client. The token
// expires after grace, so that a client that got no answer can repeat the request.
func (s *Store) UseRefresh(ctx context.Context, refresh, client string, now time.Time, grace time.Duration) (User, error) {
	var u User
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		err := tx.GetContext(ctx, &u, tx.Rebind(`
			SELECT users.* FROM grants JOIN users ON users.id = grants.user_id
			WHERE grants.refresh = ? AND grants.client = ? AND grants.refresh_expires > ?`), refresh, client, Time{now})
		if err != nil {
			return rowError(err, "get user of refresh token")
		}
		_, err = tx.ExecContext(ctx, tx.Rebind(`
			UPDATE grants SET refresh_expires = ? WHERE refresh = ? AND refresh_expires > ?`),
			Time{now.Add(grace)}, refresh, Time{now.Add(grace)})
		return rowError(err, "use refresh token")
	})
	return u, err
}

// rowError wraps err, with ErrNotFound for a missing row; nil if err is nil.
func rowError(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", doing, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
