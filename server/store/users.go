package store

import (
	"cmp"
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
	// Joined is the time at which the user was added.
	Joined Time `db:"joined"`
	// TimeQuota is in seconds, DiskQuota in bytes.
	TimeQuota        int64 `db:"time_quota"`
	DiskQuota        int64 `db:"disk_quota"`
	EntriesQuota     int64 `db:"entries_quota"`
	ParallelRunQuota int64 `db:"parallel_run_quota"`
	TimeUsed         int64 `db:"time_used"`
	// DiskUsed and EntriesUsed are the sum of the charges of the user's bundles.
	DiskUsed    int64 `db:"disk_used"`
	EntriesUsed int64 `db:"entries_used"`

	// The fields that users set themselves.
	Email         string `db:"email"`
	FirstName     string `db:"first_name"`
	LastName      string `db:"last_name"`
	Affiliation   string `db:"affiliation"`
	URL           string `db:"url"`
	Avatar        string `db:"avatar"` // the uuid of a bundle; empty for none
	Notifications int    `db:"notifications"`
	LastLogin     Time   `db:"last_login"` // zero if never

	// IsWorker is set for the account of a program that runs bundles for others. It may do nothing else;
	// its scopes name the owners of these bundles.
	IsWorker bool `db:"is_worker"`

	// OnlyWorker is the worker whose token a request has; empty if it has another token. The request may
	// only do that worker's calls. OnlyWorker is no column of the table users: only UserOfToken sets it.
	OnlyWorker string `db:"only_worker"`
	// Start is the number of that worker's start, and Replaced is set if it has begun again since (WorkerToken.Start).
	Start    int64 `db:"start_number"`
	Replaced bool  `db:"replaced"`

	// SessionID is the session of a request's token, and SessionUsed the time of its last use; empty if it has another
	// token. They are no columns of the table users either.
	SessionID   string `db:"session_id"`
	SessionUsed Time   `db:"session_used"`

	// Program is the program token that a request has; the zero value if it has another token. As OnlyWorker it is no
	// column of the table users.
	Program ProgramToken `db:"program"`
}

// Root reports whether the user is the root user.
func (u User) Root() bool { return u.ID == RootID }

// DefaultEntries is the EntriesQuota of a user for whom nobody has set another one.
const DefaultEntries = 20_000_000

// Bounded reports whether the request's token is for some workers alone: a worker token, or a program token.
func (u User) Bounded() bool { return u.OnlyWorker != "" || u.Program.ID != "" }

// MayBe reports whether the request's token is for a worker. A token without bounds is for all workers of its user.
func (u User) MayBe(worker string) bool {
	switch {
	case u.OnlyWorker != "":
		return worker == u.OnlyWorker
	case u.Program.ID != "":
		return u.Program.Workers.Has(worker)
	}
	return true
}

// AddUser adds a user; ErrExists if the id or the name is taken, or the name differs from another one by case
// alone. A name that another user had before is free for the new one. An EntriesQuota of 0 means DefaultEntries.
func (s *Store) AddUser(ctx context.Context, u User) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if err := freeName(ctx, tx, u.Name); err != nil {
			return err
		}
		return addUser(ctx, tx, u)
	})
}

// addUser is AddUser for a name that is nobody's former one.
func addUser(ctx context.Context, tx *sqlx.Tx, u User) error {
	u.EntriesQuota = cmp.Or(u.EntriesQuota, DefaultEntries)
	if err := checkFolded(ctx, tx, "users", "id", u.Name, u.ID); err != nil {
		return fmt.Errorf("add user %s: %w", u.Name, err)
	}
	_, err := tx.NamedExecContext(ctx, `
		INSERT INTO users (id, name, password, joined, time_quota, disk_quota, entries_quota, parallel_run_quota)
		VALUES (:id, :name, :password, :joined, :time_quota, :disk_quota, :entries_quota, :parallel_run_quota)`, u)
	if sqldb.IsUnique(err) {
		return fmt.Errorf("add user %s: %w", u.Name, ErrExists)
	}
	return rowError(err, "add user "+u.Name)
}

// User returns the user with this id or name.
func (s *Store) User(ctx context.Context, idOrName string) (User, error) {
	var u User
	err := s.db.GetContext(ctx, &u, s.db.Rebind(`SELECT * FROM users WHERE id = ? OR name = ? ORDER BY id = ? DESC LIMIT 1`),
		idOrName, idOrName, idOrName)
	return u, rowError(err, "get user "+idOrName)
}

// ChangeUser reads a user, calls decide to change it, and writes it back, in one transaction. It
// returns the changed user. It writes neither the id nor the used part of the disk quota. Another e-mail address or password ends
// the user's codes, as SetPassword does. It fails with ErrExists if
// another user has the new name, had it before, or has one that differs from it by case alone; with ErrTooMany
// after maxFormerNames changes.
func (s *Store) ChangeUser(ctx context.Context, id string, decide func(*User) error) (User, error) {
	var u User
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		u = User{}
		if err := tx.GetContext(ctx, &u, tx.Rebind(`SELECT * FROM users WHERE id = ?`), id); err != nil {
			return rowError(err, "change user "+id)
		}
		had := u
		if err := decide(&u); err != nil {
			return err
		}
		if err := rename(ctx, tx, u, had.Name); err != nil {
			return fmt.Errorf("change user %s: %w", id, err)
		}
		if u.Email != had.Email || u.Password != had.Password {
			if err := doAll(ctx, tx, "change user "+id, endCodes(id)); err != nil {
				return err
			}
		}
		_, err := tx.NamedExecContext(ctx, `
			UPDATE users SET name = :name, password = :password, time_quota = :time_quota, disk_quota = :disk_quota,
				entries_quota = :entries_quota, parallel_run_quota = :parallel_run_quota, time_used = :time_used, email = :email, first_name = :first_name,
				last_name = :last_name, affiliation = :affiliation, url = :url, avatar = :avatar, notifications = :notifications, last_login = :last_login
			WHERE id = :id`, u)
		if sqldb.IsUnique(err) {
			return fmt.Errorf("change user %s: %w", id, ErrExists)
		}
		return rowError(err, "change user "+id)
	})
	return u, err
}

// Owned holds the objects that a user owns.
type Owned struct{ Bundles, Worksheets, Groups []string }

// DeleteUser deletes a user who owns nothing, with the memberships and tokens, and ends the offers to the user.
// If the user owns objects, DeleteUser returns them and deletes nothing. No other user can take the name by a
// rename.
func (s *Store) DeleteUser(ctx context.Context, id string) (Owned, error) {
	var owned Owned
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		owned = Owned{}
		for table, uuids := range map[string]*[]string{"bundles": &owned.Bundles, "worksheets": &owned.Worksheets, "groups": &owned.Groups} {
			if err := tx.SelectContext(ctx, uuids, tx.Rebind(`SELECT uuid FROM `+table+` WHERE owner_id = ? LIMIT 20`), id); err != nil {
				return fmt.Errorf("delete user %s: %w", id, err)
			}
		}
		if len(owned.Bundles)+len(owned.Worksheets)+len(owned.Groups) > 0 {
			return nil
		}
		if err := forgetUser(ctx, tx, id); err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM users WHERE id = ?`), id)
		if err != nil {
			return fmt.Errorf("delete user %s: %w", id, err)
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("delete user %s: %w", id, ErrNotFound))
		}
		return nil
	})
	return owned, err
}

// UsersByID returns those of these users that exist, by id.
func (s *Store) UsersByID(ctx context.Context, ids []string) (map[string]User, error) {
	users, err := selectIn[User](ctx, s.db, ids, `SELECT * FROM users WHERE id IN (?)`)
	found := make(map[string]User, len(users))
	for _, u := range users {
		found[u.ID] = u
	}
	return found, rowError(err, "get users")
}

// Users returns all users, by name.
func (s *Store) Users(ctx context.Context) ([]User, error) {
	var users []User
	err := s.db.SelectContext(ctx, &users, `SELECT * FROM users ORDER BY name`)
	return users, rowError(err, "list users")
}

// UserOfToken returns the user of the access token or worker token with this hash.
func (s *Store) UserOfToken(ctx context.Context, token string, now time.Time) (User, error) {
	var u User
	err := s.db.GetContext(ctx, &u, s.db.Rebind(`
		SELECT users.*, '' AS only_worker, 0 AS start_number, sessions.id AS session_id, sessions.used AS session_used, 0 AS replaced
		FROM grants JOIN sessions ON sessions.id = grants.session_id JOIN users ON users.id = sessions.user_id
		WHERE grants.access = ? AND grants.access_expires > ?
		UNION ALL
		SELECT users.*, worker_tokens.worker_id AS only_worker, worker_tokens.start_number, '' AS session_id, 0 AS session_used,
			CASE WHEN EXISTS (SELECT 1 FROM worker_tokens AS later WHERE later.user_id = worker_tokens.user_id
				AND later.worker_id = worker_tokens.worker_id AND later.start_number > worker_tokens.start_number) THEN 1 ELSE 0 END AS replaced
		FROM worker_tokens JOIN users ON users.id = worker_tokens.user_id
		WHERE worker_tokens.token = ? AND worker_tokens.expires > ?`), token, Time{now}, token, Time{now})
	return u, rowError(err, "get user of token")
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
