package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// ProgramToken is a token of an account for a program: a bridge, a stand-alone worker, or a worker manager. It is for
// some workers alone. The zero value is none.
type ProgramToken struct {
	ID      string      `db:"id"`
	Token   string      `db:"token"` // hashed
	UserID  string      `db:"user_id"`
	Workers WorkerNames `db:"workers"`
	// Manages is set for a token of a worker manager: it also finds staged runs, lists its workers, and makes their
	// worker tokens.
	Manages bool `db:"manages"`
	// ByLogin is set if a login of the user made the token, and not the operator. Such a token ends with the logins: the
	// thief of one could have made it.
	ByLogin bool `db:"by_login"`
	Created Time `db:"created"`
	// LastUsed may be ProgramUseStep too early. It and Expires are zero for never.
	LastUsed Time `db:"last_used"`
	Expires  Time `db:"expires"`
}

// ProgramUseStep is the least time between two LastUsed of a token, so that not every request writes.
const ProgramUseStep = 10 * time.Minute

// WorkerNames are ids of workers, and beginnings of ids with a "*" at the end, with blanks between them: a bridge's
// queues are the workers "NAME-*".
type WorkerNames string

// ParseWorkerNames reads names of workers.
func ParseWorkerNames(words []string) (WorkerNames, error) {
	const longest = 1000
	if len(words) == 0 {
		return "", errors.New("name the workers: ids, or for a bridge NAME-*, which are all its queues")
	}
	for _, word := range words {
		name := strings.TrimSuffix(word, "*")
		for _, r := range name {
			if r <= ' ' || r == '*' || r == ',' || r >= 0x7f {
				return "", fmt.Errorf("worker %q: a name has letters, digits and signs, no blanks and commas, and a * at its end alone", word)
			}
		}
		if name == "" {
			return "", fmt.Errorf("worker %q: a name has something before its *: a token for all workers is a password", word)
		}
	}
	joined := strings.Join(words, " ")
	if len(joined) > longest {
		return "", fmt.Errorf("the names of the workers have %d bytes, and may have %d: use NAME-*", len(joined), longest)
	}
	return WorkerNames(joined), nil
}

// List returns the single names.
func (n WorkerNames) List() []string { return strings.Fields(string(n)) }

// Has reports whether a worker id is among the names.
func (n WorkerNames) Has(worker string) bool {
	for name := range strings.FieldsSeq(string(n)) {
		begin, isBegin := strings.CutSuffix(name, "*")
		if name == worker || isBegin && strings.HasPrefix(worker, begin) {
			return true
		}
	}
	return false
}

// AddProgramToken adds a program token. It fails with ErrTooMany if its user has most of them already that have not
// ended.
func (s *Store) AddProgramToken(ctx context.Context, t ProgramToken, most int) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var have int
		err := tx.GetContext(ctx, &have, tx.Rebind(`SELECT COUNT(*) FROM program_tokens WHERE user_id = ? AND (expires = 0 OR expires > ?)`), t.UserID, t.Created)
		if err == nil && have >= most {
			return fmt.Errorf("add program token: %w", ErrTooMany)
		}
		if err == nil {
			_, err = tx.NamedExecContext(ctx, `
				INSERT INTO program_tokens (id, token, user_id, workers, manages, by_login, created, last_used, expires)
				VALUES (:id, :token, :user_id, :workers, CASE WHEN :manages THEN 1 ELSE 0 END, CASE WHEN :by_login THEN 1 ELSE 0 END, :created, :last_used, :expires)`, t)
		}
		return rowError(err, "add program token")
	})
}

// ProgramTokens returns the program tokens of a user, or of all users if userID is empty, the oldest first. Ended ones
// are among them.
func (s *Store) ProgramTokens(ctx context.Context, userID string) ([]ProgramToken, error) {
	var all []ProgramToken
	err := s.db.SelectContext(ctx, &all, s.db.Rebind(`
		SELECT * FROM program_tokens WHERE ? = '' OR user_id = ? ORDER BY created, id`), userID, userID)
	return all, rowError(err, "list program tokens")
}

// DeleteProgramToken ends a program token of a user, or of any user if userID is empty, and the worker tokens that it made. It
// fails with ErrNotFound if there is none.
func (s *Store) DeleteProgramToken(ctx context.Context, userID, id string) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		result, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM program_tokens WHERE id = ? AND (? = '' OR user_id = ?)`), id, userID, userID)
		if err != nil {
			return rowError(err, "delete program token "+id)
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("delete program token %s: %w", id, ErrNotFound))
		}
		return nil
	})
}

// UserOfProgramToken returns the user of the program token with this hash.
func (s *Store) UserOfProgramToken(ctx context.Context, token string, now time.Time) (User, error) {
	var u User
	err := s.db.GetContext(ctx, &u, s.db.Rebind(`
		SELECT users.*, p.id AS "program.id", p.workers AS "program.workers", p.manages AS "program.manages",
			p.created AS "program.created", p.last_used AS "program.last_used", p.expires AS "program.expires"
		FROM program_tokens p JOIN users ON users.id = p.user_id
		WHERE p.token = ? AND (p.expires = 0 OR p.expires > ?)`), token, Time{now})
	return u, rowError(err, "get user of program token")
}

// NoteProgramTokenUsed sets the time at which a program token was used last, unless that is ProgramUseStep ago at most.
func (s *Store) NoteProgramTokenUsed(ctx context.Context, id string, now time.Time) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE program_tokens SET last_used = ? WHERE id = ? AND last_used <= ?`),
			Time{now}, id, Time{now.Add(-ProgramUseStep)})
		return rowError(err, "note the use of program token "+id)
	})
}
