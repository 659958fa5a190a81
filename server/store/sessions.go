package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// Session is one sign-in of a program, with the tokens that the program has got since.
type Session struct {
	ID      string `db:"id"`
	UserID  string `db:"user_id"`
	Client  string `db:"client"`  // CodaLab's name of the kind of program
	Program string `db:"program"` // the program's own name for itself
	Address string `db:"address"` // of its last use
	Made    Time   `db:"made"`
	Used    Time   `db:"used"` // some minutes late
}

// Grant is a pair of tokens of a session, as hashes.
type Grant struct {
	Access         string `db:"access"`
	Refresh        string `db:"refresh"`
	SessionID      string `db:"session_id"`
	AccessExpires  Time   `db:"access_expires"`
	RefreshExpires Time   `db:"refresh_expires"`
}

// MaxSessions bounds the sessions of one user: a new one ends the one that was used least recently, and of which no
// request is under way.
const MaxSessions = 200

// rememberUsed is the time for which a used refresh token is kept, so that its second use is noticed. It is as long as
// such a token would have lived without a use: its owner may be away for weeks while a thief goes on with the session.
const rememberUsed = 30 * 24 * time.Hour

// ErrReused means that a refresh token was used again, long after its first use: two programs have it.
var ErrReused = errors.New("the refresh token was used before")

// SignIn is a new session.
type SignIn struct {
	Session Session
	Grant   Grant
	// Checked is the hash against which the password was checked. If the user has another one by now, the
	// password was changed meanwhile, and the sign-in fails with ErrNotFound. Empty if no password was checked.
	Checked string
	// Rehashed replaces the hash, unless it is empty.
	Rehashed string
	// Marks are those by which the program is known at its next sign-in.
	Marks []string
	// InUse are the user's sessions with a request under way.
	InUse []string
}

// BeginSession adds a session, and returns its user.
func (s *Store) BeginSession(ctx context.Context, in SignIn, now time.Time) (User, error) {
	var u User
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		u = User{}
		if err := tx.GetContext(ctx, &u, tx.Rebind(`SELECT * FROM users WHERE id = ?`), in.Session.UserID); err != nil {
			return rowError(err, "begin session")
		}
		if in.Checked != "" && u.Password != in.Checked {
			return fmt.Errorf("begin session: the password was changed: %w", ErrNotFound)
		}
		if in.Rehashed != "" {
			u.Password = in.Rehashed
		}
		u.LastLogin = Time{now}
		if err := dropEnded(ctx, tx, u.ID, now); err != nil {
			return err
		}
		return doAll(ctx, tx, "begin session", []step{
			{`UPDATE users SET password = ?, last_login = ? WHERE id = ?`, []any{u.Password, u.LastLogin, u.ID}},
			dropOldest(u.ID, in.InUse),
			{
				`INSERT INTO sessions (id, user_id, client, program, address, made, used) VALUES (?, ?, ?, ?, ?, ?, ?)`,
				[]any{in.Session.ID, u.ID, in.Session.Client, in.Session.Program, in.Session.Address, Time{now}, Time{now}},
			},
			insertGrant(in.Grant, in.Session.ID),
		}, markClients(u.ID, in.Marks, now))
	})
	return u, err
}

// dropOldest makes room for a session of a user.
func dropOldest(userID string, inUse []string) step {
	values := []any{userID, userID, MaxSessions - 1, userID}
	for _, id := range inUse {
		values = append(values, id)
	}
	return step{
		`DELETE FROM sessions WHERE user_id = ? AND id NOT IN (SELECT id FROM sessions WHERE user_id = ? ORDER BY used DESC, id LIMIT ?)
			AND id NOT IN (?` + strings.Repeat(", ?", len(inUse)) + `)`, // the user's id is no session's: the list is never empty
		values,
	}
}

// step is a statement with its values.
type step struct {
	text   string
	values []any
}

// doAll executes statements.
func doAll(ctx context.Context, tx *sqlx.Tx, doing string, lists ...[]step) error {
	for _, list := range lists {
		for _, one := range list {
			if _, err := tx.ExecContext(ctx, tx.Rebind(one.text), one.values...); err != nil {
				return rowError(err, doing)
			}
		}
	}
	return nil
}

func insertGrant(g Grant, session string) step {
	return step{
		`INSERT INTO grants (access, refresh, session_id, access_expires, refresh_expires) VALUES (?, ?, ?, ?, ?)`,
		[]any{g.Access, g.Refresh, session, g.AccessExpires, g.RefreshExpires},
	}
}

// dropEnded deletes the grants of a user that have expired, and the sessions that have no grant left.
func dropEnded(ctx context.Context, tx *sqlx.Tx, userID string, now time.Time) error {
	return doAll(ctx, tx, "drop ended sessions", []step{
		{`DELETE FROM grants WHERE session_id IN (SELECT id FROM sessions WHERE user_id = ?)
			AND access_expires < ? AND refresh_expires < ? AND used < ?`, []any{userID, Time{now}, Time{now}, Time{now.Add(-rememberUsed)}}},
		{`DELETE FROM sessions WHERE user_id = ? AND NOT EXISTS (SELECT 1 FROM grants WHERE session_id = sessions.id)`, []any{userID}},
	})
}

// Renewal is the use of a refresh token.
type Renewal struct {
	Refresh, Client string // the token's hash, and the kind of program
	Next            Grant
	Address         string
	// Grace is the time for which the token can be used again, because an answer may be lost. After ReusedAfter, a
	// use of it ends the session, if Strict returns true for the session's program.
	Grace, ReusedAfter time.Duration
	Strict             func(program string) bool
}

// RenewSession adds a grant to the session of a refresh token. It fails with ErrNotFound if there is no such token,
// and with ErrReused if it has ended the session.
func (s *Store) RenewSession(ctx context.Context, in Renewal, now time.Time) (User, error) {
	var u User
	reused := false
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		reused = false
		var old struct {
			SessionID string `db:"session_id"`
			UserID    string `db:"user_id"`
			Program   string `db:"program"`
			Expires   Time   `db:"refresh_expires"`
			Used      Time   `db:"used"`
		}
		err := tx.GetContext(ctx, &old, tx.Rebind(`
			SELECT grants.session_id, sessions.user_id, sessions.program, grants.refresh_expires, grants.used
			FROM grants JOIN sessions ON sessions.id = grants.session_id WHERE grants.refresh = ? AND sessions.client = ?`), in.Refresh, in.Client)
		if err != nil {
			return rowError(err, "renew session")
		}
		u = User{}
		if err := tx.GetContext(ctx, &u, tx.Rebind(`SELECT * FROM users WHERE id = ?`), old.UserID); err != nil {
			return rowError(err, "renew session")
		}
		u.SessionID = old.SessionID
		first := old.Used.IsZero()
		switch {
		case !first && now.Sub(old.Used.Time) > in.ReusedAfter && in.Strict(old.Program):
			reused = true
			return doAll(ctx, tx, "end session", []step{{`DELETE FROM sessions WHERE id = ?`, []any{old.SessionID}}})
		case !old.Expires.After(now), !first && now.Sub(old.Used.Time).Abs() > in.Grace: // a clock that was set back lengthens nothing
			return fmt.Errorf("renew session: %w", ErrNotFound)
		case first:
			old.Used, old.Expires = Time{now}, Time{minTime(old.Expires.Time, now.Add(in.Grace))}
		}
		if err := dropEnded(ctx, tx, u.ID, now); err != nil {
			return err
		}
		return doAll(ctx, tx, "renew session", []step{
			{`UPDATE grants SET refresh_expires = ?, used = ? WHERE refresh = ?`, []any{old.Expires, old.Used, in.Refresh}},
			{`UPDATE sessions SET used = ?, address = ? WHERE id = ?`, []any{Time{now}, in.Address, old.SessionID}},
			insertGrant(in.Next, old.SessionID),
		})
	})
	if err == nil && reused {
		err = fmt.Errorf("renew session: %w", ErrReused)
	}
	return u, err
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// NoteUse records that a session is in use.
func (s *Store) NoteUse(ctx context.Context, id, address string, now time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		return doAll(ctx, tx, "note the use of a session", []step{
			{`UPDATE sessions SET used = ?, address = ? WHERE id = ?`, []any{Time{now}, address, id}},
		})
	})
}

// Sessions returns the sessions of a user that have a valid token, the last used first.
func (s *Store) Sessions(ctx context.Context, userID string, now time.Time) ([]Session, error) {
	sessions := []Session{}
	err := s.db.SelectContext(ctx, &sessions, s.db.Rebind(`
		SELECT * FROM sessions WHERE user_id = ? AND EXISTS (
			SELECT 1 FROM grants WHERE session_id = sessions.id AND (access_expires > ? OR refresh_expires > ?))
		ORDER BY used DESC, id`), userID, Time{now}, Time{now})
	return sessions, rowError(err, "list sessions")
}

// EndSession ends a session of a user. It fails with ErrNotFound if the user has no such session.
func (s *Store) EndSession(ctx context.Context, userID, id string) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		result, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM sessions WHERE user_id = ? AND id = ?`), userID, id)
		if err != nil {
			return rowError(err, "end session")
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("end session: %w", ErrNotFound))
		}
		return nil
	})
}

// EndSessions ends the sessions of a user, except one; an empty text excepts none. It returns their number.
func (s *Store) EndSessions(ctx context.Context, userID, except string) (n int64, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		result, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM sessions WHERE user_id = ? AND id <> ?`), userID, except)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return rowError(err, "end sessions")
	})
	return n, err
}

// DeleteGrant ends the session that has a token with this hash, or the worker token with it, if there is one.
func (s *Store) DeleteGrant(ctx context.Context, token string) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		return doAll(ctx, tx, "delete grant", []step{
			{`DELETE FROM sessions WHERE id IN (SELECT session_id FROM grants WHERE access = ? OR refresh = ?)`, []any{token, token}},
			{`DELETE FROM worker_tokens WHERE token = ?`, []any{token}},
		})
	})
}
