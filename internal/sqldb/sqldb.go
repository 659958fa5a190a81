// Package sqldb opens SQLite files and PostgreSQL databases through sqlx, and applies goose
// migrations before it returns them.
//
// The same statements serve both kinds. They are written with "?" and passed through Rebind;
// columns are BIGINT, TEXT and DOUBLE PRECISION only (times are Unix numbers); every write goes through InTx.
// Several programs may open one database at the same time: transactions are serializable, and a
// transaction that conflicts with another waits or runs again.
//
// A transaction that InTx has committed survives a crash of the machine, if the disk obeys
// flushes. SQLite flushes at each commit. sqldb asks PostgreSQL to do the same
// (synchronous_commit = on, whatever the server's default); the server's fsync and
// full_page_writes must be on.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/pressly/goose/v3"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
)

// Errors that callers may act on.
var (
	// ErrUnavailable means that the database does not answer. Nothing was written. The same
	// call may succeed later: Transient() returns true.
	ErrUnavailable error = transient("the database does not answer")
	// ErrFull means that the disk of the database is full. Otherwise it is like ErrUnavailable.
	ErrFull error = transient("the disk of the database is full")
	// ErrDisk means that the disk of an SQLite database fails, or has become read-only, as Linux makes a disk that fails.
	ErrDisk = errors.New("the disk of the database fails, or is read-only")
	// ErrInDoubt means that the connection broke during a commit and could not be made
	// again: the caller has to find out whether the transaction happened.
	ErrInDoubt = errors.New("the connection broke while a transaction was committed, and its outcome is not known")
	// ErrAbsent means that the database does not exist, or has another kind.
	ErrAbsent = errors.New("there is no such database")
	// ErrForm means that the migrations of a database are not those of this program.
	ErrForm = errors.New("the database was written by another version of this program")
)

// transient is an error that may pass.
type transient string

func (t transient) Error() string { return string(t) }

// Transient reports that the same call may succeed later.
func (transient) Transient() bool { return true }

// DB is an open database. Reads go through SelectContext, GetContext and sqlx's other methods,
// and run concurrently; writes go through InTx. It is safe for concurrent use.
type DB struct {
	*sqlx.DB
	dialect dialect
	name    string // in errors; without a password
	// writer is held by the transaction that writes to SQLite, which allows one at a
	// time and would poll for its turn. It is nil for PostgreSQL, unless TakeTurns was called.
	writer writerLock
	// group has the transactions that wait for the writer of SQLite; nil for PostgreSQL.
	group *group
}

// dialect holds the differences between SQLite and PostgreSQL.
type dialect struct {
	goose goose.Dialect
	// options are those of a serializable transaction.
	options *sql.TxOptions
	// id selects the current transaction's ID, and outcome the result of a transaction. Both
	// are empty if a commit cannot be in doubt.
	id, outcome string
	// abandon ends the session that still has a transaction open.
	abandon string
	// snapshot begins a transaction that reads one state of the database.
	snapshot string
}

// IsURL reports whether where is the address of a PostgreSQL database; otherwise it is the path
// of an SQLite file.
func IsURL(where string) bool {
	return strings.HasPrefix(where, "postgres:") || strings.HasPrefix(where, "postgresql:")
}

// Open opens a database and applies the missing migrations: goose's *.sql files in the top
// directory. The caller closes the database.
//
// A path is that of an SQLite file. Open creates a missing file, readable by its owner only;
// its directory must exist, on a local disk. A URL, "postgres://USER@HOST:PORT/DATABASE", is
// that of an existing database of PostgreSQL 14 or newer. The tables are in the first schema of
// its search_path, which a parameter of the URL may set. For missing parts of a URL the driver
// reads libpq's environment variables (PGHOST, PGPASSWORD, …) and its password file (~/.pgpass,
// PGPASSFILE). Errors never hold a password.
func Open(ctx context.Context, where string, migrations fs.FS) (*DB, error) {
	db, err := connect(ctx, where, false)
	if err != nil {
		return nil, err
	}
	if err := db.migrate(ctx, migrations); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// OpenToRead opens a database like Open, but creates and changes nothing. Another program may
// write at the same time. It fails with ErrAbsent if there is no database, and with ErrForm
// unless exactly these migrations were applied.
func OpenToRead(ctx context.Context, where string, migrations fs.FS) (*DB, error) {
	db, err := connect(ctx, where, true)
	if err != nil {
		return nil, err
	}
	if err := db.checkForm(ctx, migrations); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func connect(ctx context.Context, where string, readOnly bool) (*DB, error) {
	if IsURL(where) {
		return connectPostgres(ctx, where, readOnly)
	}
	return connectSQLite(where, readOnly)
}

// limitConnections allows several readers in addition to the writer.
func limitConnections(db *sqlx.DB) {
	connections := max(4, runtime.GOMAXPROCS(0)+1)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
}

// migrate applies the missing migrations. If several programs start at the same time, one that meets another's
// lock or tables tries again. They may meet at each migration, so only tries count between which nobody has
// applied any.
func (db *DB) migrate(ctx context.Context, migrations fs.FS) error {
	provider, err := goose.NewProvider(db.dialect.goose, db.DB.DB, migrations)
	if err != nil {
		return fmt.Errorf("read migrations of database %s: %w", db.name, err)
	}
	const tries = 5
	before := int64(-1)
	for try := 1; ; try++ {
		if _, err = provider.Up(ctx); err == nil {
			return db.checkForm(ctx, migrations)
		}
		if applied, readErr := db.applied(ctx); readErr == nil && applied > before {
			before, try = applied, 1
		}
		if try == tries || backOff(ctx, try) != nil {
			return fmt.Errorf("migrate database %s: %w", db.name, nameDisk(err))
		}
	}
}

// applied returns the newest migration that was applied.
func (db *DB) applied(ctx context.Context) (version int64, err error) {
	err = db.GetContext(ctx, &version, `SELECT coalesce(max(version_id), 0) FROM goose_db_version`)
	return version, err
}

// checkForm compares the newest migration that was applied with the newest that is
// known.
func (db *DB) checkForm(ctx context.Context, migrations fs.FS) error {
	provider, err := goose.NewProvider(db.dialect.goose, db.DB.DB, migrations)
	if err != nil {
		return fmt.Errorf("read migrations of database %s: %w", db.name, err)
	}
	sources := provider.ListSources()
	known := sources[len(sources)-1].Version // goose refuses an empty list
	applied, err := db.applied(ctx)
	if err != nil {
		if isSQLite(err, sqlite3.SQLITE_ERROR) || pq.As(err, pqerror.UndefinedTable) != nil { // SQLite has no narrower code
			err = fmt.Errorf("%w (%w)", ErrAbsent, err)
		}
		return fmt.Errorf("open database %s: %w", db.name, err)
	}
	switch {
	case applied < known:
		return fmt.Errorf("open database %s: %w: an older one; the next start updates it", db.name, ErrForm)
	case applied > known:
		return fmt.Errorf("open database %s: %w: a newer one", db.name, ErrForm)
	}
	return nil
}

// TakeTurns makes InTx run one transaction at a time in PostgreSQL, too. Call it before the
// first use of the database. It is faster if most of the program's transactions conflict,
// because InTx repeats a transaction after each conflict.
func (db *DB) TakeTurns() {
	if db.writer == nil {
		db.writer = make(writerLock, 1)
	}
}

// InTx runs fn in a serializable transaction and commits it, or rolls it back when fn
// fails or panics. After a conflict with another program, when the connection to
// PostgreSQL broke, or when a group of transactions of SQLite failed that are committed
// together, fn runs again from its beginning. It may run in another goroutine than the
// caller's. So fn must have effects on tx only, must not use db itself or call InTx, must
// not wait for anything but the database, and must return every error of tx: after one,
// PostgreSQL refuses all else in the transaction. fn's own error is returned as it is.
//
// With ErrUnavailable, with ErrFull, and with any error of fn's, nothing was written.
// With ErrInDoubt, or if ctx ends during the commit, fn's writes may have been committed.
func (db *DB) InTx(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case db.group != nil:
		if committed, err := db.waitForCommit(ctx, fn); committed || err != nil {
			return err
		}
		defer db.writer.release()
	case db.writer != nil:
		if err := db.writer.acquire(ctx); err != nil {
			return err
		}
		defer db.writer.release()
	}
	return db.retry(ctx, func() error { return db.tryTx(ctx, fn) })
}

// SelectContext is sqlx's, and reads again when the connection broke. It fails with
// ErrUnavailable when that cannot be made again.
func (db *DB) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	return db.retry(ctx, func() error {
		reflect.ValueOf(dest).Elem().SetLen(0) // drop rows that were read before the connection broke
		return db.DB.SelectContext(ctx, dest, query, args...)
	})
}

// GetContext is sqlx's, and reads again as SelectContext does.
func (db *DB) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	return db.retry(ctx, func() error { return db.DB.GetContext(ctx, dest, query, args...) })
}

// retryFor limits the retries after a conflict with another program or a broken connection. A
// server can restart in that time.
const retryFor = 30 * time.Second

// retry calls fn again after a conflict or a broken connection, until retryFor is over since the first failure.
func (db *DB) retry(ctx context.Context, fn func() error) error {
	err := fn()
	if err == nil {
		return nil
	}
	retrying, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	for try := 1; err != nil; try++ {
		broken := ctx.Err() == nil && db.isBroken(err) && !errors.Is(err, ErrInDoubt)
		switch {
		case (broken || isConflict(err)) && retrying.Err() == nil && backOff(ctx, try) == nil:
		case broken:
			return fmt.Errorf("%w (%w)", ErrUnavailable, err)
		default:
			return nameDisk(err)
		}
		err = fn()
	}
	return nil
}

// nameDisk gives ErrFull to an error of SQLite on a full disk, also to that of its file of shared memory, which cannot
// grow. It gives ErrDisk to other errors of the disk. A PostgreSQL whose disk is full is unavailable.
func nameDisk(err error) error {
	switch {
	case isSQLite(err, sqlite3.SQLITE_FULL), isSQLite(err, sqlite3.SQLITE_IOERR_SHMSIZE):
		return fmt.Errorf("%w (%w)", ErrFull, err)
	case isSQLite(err, sqlite3.SQLITE_IOERR):
		return fmt.Errorf("%w (%w)", ErrDisk, err)
	}
	return err
}

// tryTx runs fn in one transaction. Unless the error is ErrInDoubt, the transaction
// did not happen.
func (db *DB) tryTx(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	tx, err := db.BeginTxx(ctx, db.dialect.options)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to roll back
	if err := fn(tx); err != nil {
		return err
	}
	var id int64
	if db.dialect.id != "" {
		if err := tx.Get(&id, db.dialect.id); err != nil {
			return fmt.Errorf("number transaction: %w", err)
		}
	}
	if err = tx.Commit(); err == nil {
		return nil
	}
	if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil { // the reason why database/sql has rolled back
		err = ctx.Err()
	}
	if db.isBroken(err) {
		switch db.outcome(ctx, id) {
		case committed:
			return nil
		case aborted:
		default:
			err = fmt.Errorf("%w (%w)", ErrInDoubt, err)
		}
	}
	return fmt.Errorf("commit transaction: %w", err)
}

// Outcomes of a transaction, in PostgreSQL's words.
const (
	committed = "committed"
	aborted   = "aborted"
)

// outcome gets the outcome of a transaction whose connection broke during the commit, over a
// new connection; empty means unknown. A server that has not noticed the break would wait for
// the commit, and keep the transaction's locks, until TCP gives up the connection, so outcome
// ends that session.
func (db *DB) outcome(ctx context.Context, id int64) string {
	retrying, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	for try := 1; ; try++ {
		var outcome string
		err := db.DB.GetContext(ctx, &outcome, db.Rebind(db.dialect.outcome), id)
		switch {
		case err == nil && (outcome == committed || outcome == aborted):
			return outcome
		case pq.As(err, pqerror.InvalidParameterValue) != nil:
			// The server has not used this ID yet: it has crashed before the transaction
			// reached its log (PostgreSQL's xid8funcs.c: TransactionIdInRecentPast).
			return aborted
		case err == nil:
			_, _ = db.ExecContext(ctx, db.Rebind(db.dialect.abandon), id) // the next look-up returns the outcome
		}
		if retrying.Err() != nil || backOff(ctx, try) != nil {
			return ""
		}
	}
}

// isBroken reports whether err means that the connection broke, or cannot be made.
func (db *DB) isBroken(err error) bool { return db.dialect.outcome != "" && isGone(err) }

// backOff waits twice as long after each try, up to half a second and a quarter more by chance.
func backOff(ctx context.Context, try int) error {
	return backoff.Wait(ctx, try, 20*time.Millisecond, 500*time.Millisecond)
}

// isConflict reports whether err is a conflict with another program.
func isConflict(err error) bool {
	return isSQLite(err, sqlite3.SQLITE_BUSY) || isSQLite(err, sqlite3.SQLITE_LOCKED) ||
		pq.As(err, pqerror.TRSerializationFailure, pqerror.TRDeadlockDetected, pqerror.LockNotAvailable) != nil
}

// IsUnique reports whether err means that a row with the same key exists.
func IsUnique(err error) bool {
	return isSQLite(err, sqlite3.SQLITE_CONSTRAINT_UNIQUE) || isSQLite(err, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY) ||
		pq.As(err, pqerror.UniqueViolation) != nil
}
