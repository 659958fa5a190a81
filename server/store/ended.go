package store

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"
)

// Holder permitted a request: a session, a worker token, or a program token, of a user. One of SessionID,
// WorkerID and ProgramID is set.
type Holder struct{ UserID, SessionID, WorkerID, ProgramID string }

// Ended returns those holders that are there no more: the user was removed, or the session or all tokens of the worker
// have ended. Tokens that have only expired do not count, unless they were dropped since: the request began before.
func (s *Store) Ended(ctx context.Context, holders []Holder) (map[Holder]bool, error) {
	var users, sessions, programs, ofWorkers []string
	for _, h := range holders {
		users = append(users, h.UserID)
		if h.SessionID != "" {
			sessions = append(sessions, h.SessionID)
		}
		if h.ProgramID != "" {
			programs = append(programs, h.ProgramID)
		}
		if h.WorkerID != "" {
			ofWorkers = append(ofWorkers, h.UserID)
		}
	}
	haveUsers, err := selectIn[string](ctx, s.db, users, `SELECT id FROM users WHERE id IN (?)`)
	if err != nil {
		return nil, rowError(err, "find users")
	}
	haveSessions, err := selectIn[string](ctx, s.db, sessions, `SELECT id FROM sessions WHERE id IN (?)`)
	if err != nil {
		return nil, rowError(err, "find sessions")
	}
	havePrograms, err := selectIn[string](ctx, s.db, programs, `SELECT id FROM program_tokens WHERE id IN (?)`)
	if err != nil {
		return nil, rowError(err, "find program tokens")
	}
	type tokenHolder struct {
		UserID   string `db:"user_id"`
		WorkerID string `db:"worker_id"`
	}
	haveWorkers, err := selectIn[tokenHolder](ctx, s.db, ofWorkers, `SELECT DISTINCT user_id, worker_id FROM worker_tokens WHERE user_id IN (?)`)
	if err != nil {
		return nil, rowError(err, "find worker tokens")
	}
	user, session, program, worker := setOf(haveUsers), setOf(haveSessions), setOf(havePrograms), setOf(haveWorkers)
	ended := map[Holder]bool{}
	for _, h := range holders {
		if !user[h.UserID] || h.SessionID != "" && !session[h.SessionID] || h.ProgramID != "" && !program[h.ProgramID] || h.WorkerID != "" && !worker[tokenHolder{h.UserID, h.WorkerID}] {
			ended[h] = true
		}
	}
	return ended, nil
}

func setOf[T comparable](list []T) map[T]bool {
	set := make(map[T]bool, len(list))
	for _, one := range list {
		set[one] = true
	}
	return set
}

// TokenLives are the longest validities of tokens and codes from now on.
type TokenLives struct{ Access, Refresh, Worker, Reset, Confirmation time.Duration }

// TidyTokens deletes tokens and codes that have expired, so that they do not come back with a clock that is set back. It
// bounds the others: after a clock was set back, a token would else be valid for longer than it should.
func (s *Store) TidyTokens(ctx context.Context, now time.Time, l TokenLives) error {
	at := func(d time.Duration) int64 { return now.Add(d).UnixMicro() }
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		return doAll(ctx, tx, "tidy tokens", []step{
			{`UPDATE grants SET access_expires = ? WHERE access_expires > ?`, []any{at(l.Access), at(l.Access)}},
			{`UPDATE grants SET refresh_expires = ? WHERE refresh_expires > ?`, []any{at(l.Refresh), at(l.Refresh)}},
			{`UPDATE grants SET access_expires = 0 WHERE access_expires > 0 AND access_expires < ?`, []any{at(0)}}, // used rows stay for a while
			{`UPDATE grants SET refresh_expires = 0 WHERE refresh_expires > 0 AND (refresh_expires < ? OR used > ?)`, []any{at(0), at(0)}},
			{`UPDATE grants SET used = ? WHERE used > ?`, []any{at(0), at(0)}},
			{`UPDATE sessions SET used = ? WHERE used > ?`, []any{at(0), at(0)}},
			{`UPDATE sessions SET made = ? WHERE made > ?`, []any{at(0), at(0)}},
			{`UPDATE known_clients SET seen = ? WHERE seen > ?`, []any{at(0), at(0)}},
			{`UPDATE worker_tokens SET latest = ? WHERE latest > ?`, []any{at(l.Worker), at(l.Worker)}},
			{`UPDATE worker_tokens SET expires = ? + seconds * 1000000 WHERE expires > ? + seconds * 1000000`, []any{at(0), at(0)}},
			{`UPDATE program_tokens SET last_used = ? WHERE last_used > ?`, []any{at(0), at(0)}},
			{`UPDATE program_tokens SET token = 'ended ' || id WHERE expires <> 0 AND expires < ?`, []any{at(0)}},
			{`UPDATE password_resets SET expires = ? WHERE expires > ?`, []any{at(l.Reset), at(l.Reset)}},
			{`UPDATE confirmations SET expires = ? WHERE expires > ?`, []any{at(l.Confirmation), at(l.Confirmation)}},
			{`DELETE FROM grants WHERE access_expires < ? AND refresh_expires < ? AND used < ?`, []any{at(0), at(0), at(-rememberUsed)}},
			{`DELETE FROM sessions WHERE NOT EXISTS (SELECT 1 FROM grants WHERE session_id = sessions.id)`, nil},
			{`DELETE FROM worker_tokens WHERE expires < ?`, []any{at(0)}},
			{`DELETE FROM password_resets WHERE expires < ?`, []any{at(0)}},
			{`DELETE FROM confirmations WHERE expires < ?`, []any{at(0)}},
		})
	})
}
