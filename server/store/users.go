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

// RootID is the id of the user who may do everything.
const RootID = "0"

// User is a person, or a program that acts as one.
type User struct {
	ID       string `db:"id"`
	Name     string `db:"name"`
	Password string `db:"password"` // hashed
	// Joined is when the user was added, in Unix microseconds.
	Joined int64 `db:"joined"`
	// TimeQuota is in seconds, DiskQuota in bytes.
	TimeQuota        int64 `db:"time_quota"`
	DiskQuota        int64 `db:"disk_quota"`
	ParallelRunQuota int64 `db:"parallel_run_quota"`
	TimeUsed         int64 `db:"time_used"`
	DiskUsed         int64 `db:"disk_used"`
}

// Root says whether the user may do everything.
func (u User) Root() bool { return u.ID == RootID }

// JoinedAt is when the user was added.
func (u User) JoinedAt() time.Time { return moment(u.Joined) }

// AddUser adds a user; ErrExists if the id or the name is taken.
func (s *Store) AddUser(ctx context.Context, u User) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.NamedExecContext(ctx, `
			INSERT INTO users (id, name, password, joined, time_quota, disk_quota, parallel_run_quota)
			VALUES (:id, :name, :password, :joined, :time_quota, :disk_quota, :parallel_run_quota)`, u)
		if sqldb.IsUnique(err) {
			return fmt.Errorf("add user %s: %w", u.Name, ErrExists)
		}
		if err != nil {
			return fmt.Errorf("add user %s: %w", u.Name, err)
		}
		return nil
	})
}

// User returns the user of this id, or of this name.
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

// AddDiskUsed adds to what a user and one of their bundles occupy, while the bundle is being
// uploaded; the upload's end sets both right.
func (s *Store) AddDiskUsed(ctx context.Context, bundleUUID string, bytes int64) error {
	_, err := s.Change(ctx, bundleUUID, func(b *Bundle) error {
		b.SetDataSize(b.DataSize + bytes)
		return nil
	})
	return err
}

// Grant is what a user was given for a password or an earlier grant. The tokens are kept
// hashed.
type Grant struct {
	Access         string `db:"access"`
	Refresh        string `db:"refresh"`
	Client         string `db:"client"`
	UserID         string `db:"user_id"`
	AccessExpires  int64  `db:"access_expires"` // Unix microseconds, as the next
	RefreshExpires int64  `db:"refresh_expires"`
}

// AddGrant keeps a grant and forgets those of the same user and client that have expired.
func (s *Store) AddGrant(ctx context.Context, g Grant, now time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`
			DELETE FROM grants WHERE user_id = ? AND client = ? AND access_expires < ? AND refresh_expires < ?`),
			g.UserID, g.Client, micros(now), micros(now))
		if err == nil {
			_, err = tx.NamedExecContext(ctx, `
				INSERT INTO grants (access, refresh, client, user_id, access_expires, refresh_expires)
				VALUES (:access, :refresh, :client, :user_id, :access_expires, :refresh_expires)`, g)
		}
		if err != nil {
			return fmt.Errorf("add grant: %w", err)
		}
		return nil
	})
}

// UserOfToken returns the user whom the access token of this hash stands for.
func (s *Store) UserOfToken(ctx context.Context, access string, now time.Time) (User, error) {
	var u User
	err := s.db.GetContext(ctx, &u, s.db.Rebind(`
		SELECT users.* FROM grants JOIN users ON users.id = grants.user_id
		WHERE grants.access = ? AND grants.access_expires > ?`), access, micros(now))
	return u, rowError(err, "get user of token")
}

// UseRefresh returns the user whom the refresh token of this hash stands for with this client,
// and lets it expire shortly: a client whose answer was lost may ask once more.
func (s *Store) UseRefresh(ctx context.Context, refresh, client string, now time.Time, grace time.Duration) (User, error) {
	var u User
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		err := tx.GetContext(ctx, &u, tx.Rebind(`
			SELECT users.* FROM grants JOIN users ON users.id = grants.user_id
			WHERE grants.refresh = ? AND grants.client = ? AND grants.refresh_expires > ?`), refresh, client, micros(now))
		if err != nil {
			return rowError(err, "get user of refresh token")
		}
		_, err = tx.ExecContext(ctx, tx.Rebind(`
			UPDATE grants SET refresh_expires = ? WHERE refresh = ? AND refresh_expires > ?`),
			micros(now.Add(grace)), refresh, micros(now.Add(grace)))
		return rowError(err, "use refresh token")
	})
	return u, err
}

// rowError says what failed, with ErrNotFound for a missing row.
func rowError(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", doing, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
