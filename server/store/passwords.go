package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
)

// NewPassword is a change of a user's password.
type NewPassword struct {
	UserID string
	Hashed string
	// Checked is the hash against which the old password was checked; see SignIn. Code is the hash of the one-time
	// code that permits the change. Both may be empty: the operator needs neither.
	Checked, Code string
	// Session is the one that stays; empty for none.
	Session string
}

// SetPassword changes a password. It ends the user's other sessions, whose number it returns, the tokens that logins of the
// user have made, and the user's codes. It forgets the user's known clients. It fails with ErrNotFound if the old password or the
// code is not valid any more.
func (s *Store) SetPassword(ctx context.Context, in NewPassword, now time.Time) (ended int, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var found string
		err := tx.GetContext(ctx, &found, tx.Rebind(`SELECT id FROM users WHERE id = ? AND (? = '' OR password = ?)
			AND (? = '' OR EXISTS (SELECT 1 FROM password_resets WHERE user_id = users.id AND code = ? AND expires > ?))`),
			in.UserID, in.Checked, in.Checked, in.Code, in.Code, Time{now})
		if err != nil {
			return rowError(err, "set password")
		}
		if err := tx.GetContext(ctx, &ended, tx.Rebind(`SELECT COUNT(*) FROM sessions WHERE user_id = ? AND id <> ?`), in.UserID, in.Session); err != nil {
			return rowError(err, "set password")
		}
		return doAll(ctx, tx, "set password", []step{
			{`UPDATE users SET password = ? WHERE id = ?`, []any{in.Hashed, in.UserID}},
			{`DELETE FROM known_clients WHERE user_id = ?`, []any{in.UserID}},
		}, endSignIns(in.UserID, in.Session))
	})
	return ended, err
}

// endSignIns ends what a user's password has opened, except one session, and the user's codes.
func endSignIns(userID, session string) []step {
	return append(endCodes(userID), []step{
		{`DELETE FROM sessions WHERE user_id = ? AND id <> ?`, []any{userID, session}},
		{`DELETE FROM program_tokens WHERE user_id = ? AND by_login = 1`, []any{userID}}, // and the worker tokens that these made
		{`DELETE FROM worker_tokens WHERE user_id = ? AND made_by IS NULL`, []any{userID}},
	}...)
}

// endCodes ends the codes that a user can use without a sign-in: those for a new password, and the one that confirms another
// e-mail address. They were mailed to addresses, for a kind of account, that the user may not have any more.
func endCodes(userID string) []step {
	return []step{
		{`DELETE FROM password_resets WHERE user_id = ?`, []any{userID}},
		{`DELETE FROM confirmations WHERE user_id = ?`, []any{userID}},
	}
}

// EndSignIns ends all sessions of a user, the tokens that logins of the user have made, and the user's codes. It returns the number
// of sessions.
func (s *Store) EndSignIns(ctx context.Context, userID string) (n int64, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if err := tx.GetContext(ctx, &n, tx.Rebind(`SELECT COUNT(*) FROM sessions WHERE user_id = ?`), userID); err != nil {
			return rowError(err, "end sign-ins")
		}
		return doAll(ctx, tx, "end sign-ins", endSignIns(userID, ""))
	})
	return n, err
}

// AddReset lets a user set a new password by a one-time code, of which code is the hash. It replaces the user's
// earlier codes.
func (s *Store) AddReset(ctx context.Context, userID, code string, expires time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		return doAll(ctx, tx, "add password reset", []step{
			{`DELETE FROM password_resets WHERE user_id = ?`, []any{userID}},
			{`INSERT INTO password_resets (user_id, mailed, code, expires) VALUES (?, 0, ?, ?)`, []any{userID, code, Time{expires}}},
		})
	})
}

// AddMailedReset is AddReset for a code that is mailed to the user's address. It replaces earlier mailed ones alone, because
// anybody can ask for a mail. It fails with ErrNotFound if the user was changed meanwhile, so that the address or the
// password is another one, or the account is a worker account; or if the user signs in by a provider, who may have ended
// that.
func (s *Store) AddMailedReset(ctx context.Context, u User, code string, expires time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var found string
		err := tx.GetContext(ctx, &found, tx.Rebind(`SELECT id FROM users WHERE id = ? AND email = ? AND password = ? AND is_worker = 0
			AND NOT EXISTS (SELECT 1 FROM identities WHERE user_id = users.id)`), u.ID, u.Email, u.Password)
		if err != nil {
			return rowError(err, "add password reset")
		}
		return doAll(ctx, tx, "add password reset", []step{
			{`DELETE FROM password_resets WHERE user_id = ? AND mailed = 1`, []any{u.ID}},
			{`INSERT INTO password_resets (user_id, mailed, code, expires) VALUES (?, 1, ?, ?)`, []any{u.ID, code, Time{expires}}},
		})
	})
}

// UserOfReset returns the user of a valid one-time code, of which code is the hash.
func (s *Store) UserOfReset(ctx context.Context, code string, now time.Time) (User, error) {
	var u User
	err := s.db.GetContext(ctx, &u, s.db.Rebind(`
		SELECT users.* FROM users JOIN password_resets ON user_id = users.id WHERE code = ? AND expires > ?`), code, Time{now})
	return u, rowError(err, "get user of password reset")
}

// maxMarks bounds the marks of one user's clients. forgetMark is the time after which a mark that was not seen is forgotten.
const (
	maxMarks   = 100
	forgetMark = 180 * 24 * time.Hour
)

// markClients notes that clients with these marks have signed in.
func markClients(userID string, marks []string, now time.Time) []step {
	var all []step
	for _, mark := range marks {
		all = append(all,
			step{`DELETE FROM known_clients WHERE user_id = ? AND mark = ?`, []any{userID, mark}},
			step{`INSERT INTO known_clients (user_id, mark, seen) VALUES (?, ?, ?)`, []any{userID, mark, Time{now}}})
	}
	return append(all, step{
		`DELETE FROM known_clients WHERE user_id = ? AND (seen < ? OR mark NOT IN (
			SELECT mark FROM known_clients WHERE user_id = ? ORDER BY seen DESC, mark LIMIT ?))`,
		[]any{userID, Time{now.Add(-forgetMark)}, userID, maxMarks},
	})
}

// KnownClient returns those of these marks by which clients of a user are known.
func (s *Store) KnownClient(ctx context.Context, userID string, marks []string, now time.Time) (map[string]bool, error) {
	query, values, err := sqlx.In(`SELECT mark FROM known_clients WHERE user_id = ? AND seen >= ? AND mark IN (?)`, userID, Time{now.Add(-forgetMark)}, marks)
	if err != nil {
		return nil, fmt.Errorf("find known clients: %w", err)
	}
	var found []string
	err = s.db.SelectContext(ctx, &found, s.db.Rebind(query), values...)
	known := map[string]bool{}
	for _, mark := range found {
		known[mark] = true
	}
	return known, rowError(err, "find known clients")
}
