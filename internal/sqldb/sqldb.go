// Package sqldb opens SQL databases through sqlx, SQLite files and PostgreSQL
// alike, brought to their newest form by goose migrations before anyone sees
// them.
//
// One text serves both. Statements are written with "?" and passed through
// Rebind; columns hold BIGINT and TEXT only (times are Unix numbers); every
// write goes through InTx. A database is opened by several programs at once
// without harm: transactions happen as if one followed the other, and one that
// is in another's way waits, or is run again.
//
// It promises that what InTx has committed is there after a crash, of the
// machine too, as far as the disk does what it is told: SQLite flushes it at
// each commit, and PostgreSQL is asked to (synchronous_commit = on, whatever
// the server's own default), which is as much as the server's fsync and
// full_page_writes are worth.
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
	"github.com/pressly/goose/v3"
)

// Why a call fails, where a caller may want to do something about it.
var (
	// ErrUnavailable means that the database does not answer. Nothing was
	// written; the same call may succeed later. It has a method Transient() bool
	// that says so.
	ErrUnavailable error = transient("the database does not answer")
	// ErrFull means that the disk of the database is full. Nothing was written,
	// and the same call may succeed later, as with ErrUnavailable.
	ErrFull error = transient("the disk of the database is full")
	// ErrInDoubt means that the connection broke during a commit and could not
	// be made again: the transaction may have happened or not. The caller has
	// to look.
	ErrInDoubt = errors.New("the connection broke while a transaction was committed, and what became of it is not known")
	// ErrAbsent means that there is no such database, or none of this kind.
	ErrAbsent = errors.New("there is no such database")
	// ErrForm means that a database is of an older or newer form than this
	// program works with.
	ErrForm = errors.New("the database was written by another version of this program")
)

// transient is an error that may be gone when the same is tried again.
type transient string

func (t transient) Error() string { return string(t) }

// Transient says that the same may succeed later.
func (transient) Transient() bool { return true }

// DB is an open database. Reads go through SelectContext, GetContext and sqlx's
// other methods, and run side by side; writes go through InTx. It is safe for
// concurrent use.
type DB struct {
	*sqlx.DB
	dialect dialect
	// name is what errors call it: it has no password.
	name string
	// writing is held by the one transaction that writes to SQLite, which has
	// one writer at a time anyway: a channel wakes the next at once where
	// SQLite would sleep and look again. PostgreSQL needs no such turn.
	writing chan struct{}
}

// dialect is what two kinds of databases do differently.
type dialect struct {
	goose goose.Dialect
	// options are those of a transaction that is as if it ran alone.
	options *sql.TxOptions
	// number asks for the current transaction's number, and fate for what
	// became of one. Empty where a commit cannot be in doubt.
	number, fate string
}

// IsURL says whether where is the address of a PostgreSQL database, and not
// the path of an SQLite file.
func IsURL(where string) bool {
	return strings.HasPrefix(where, "postgres:") || strings.HasPrefix(where, "postgresql:")
}

// Open opens a database and brings it to the newest of the migrations, goose's
// *.sql files at the top of theirs. The caller closes it.
//
// Where it is a path, it is that of an SQLite file, which is created, readable
// by its owner only, where it is missing; its directory has to be there, on a
// local disk. Where it is a URL, "postgres://USER@HOST:PORT/DATABASE", it is a
// database of PostgreSQL 14 or newer, which has to be there; the tables are
// made in the first schema of its search_path, which a parameter of the URL
// may set. What a URL leaves out is taken from libpq's environment variables
// (PGHOST, PGPASSWORD, …) and its password file (~/.pgpass, PGPASSFILE), which
// the driver reads by itself. No password is ever part of an error.
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

// OpenToRead opens a database as Open does, only to read it: nothing is
// created or changed, also while another program writes. It fails with
// ErrAbsent where there is none, and with ErrForm where the migrations that
// were applied to it are not exactly these.
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

// limit bounds the connections: some readers beside the writer.
func limit(db *sqlx.DB) {
	connections := max(4, runtime.GOMAXPROCS(0)+1)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
}

// migrate applies what is missing. Two programs may start at once: the one
// that finds the database busy, or the other's tables there already, looks
// again.
func (db *DB) migrate(ctx context.Context, migrations fs.FS) error {
	provider, err := goose.NewProvider(db.dialect.goose, db.DB.DB, migrations)
	if err != nil {
		return fmt.Errorf("read migrations of database %s: %w", db.name, err)
	}
	const tries = 5
	for try := 1; ; try++ {
		if _, err = provider.Up(ctx); err == nil {
			return db.checkForm(ctx, migrations)
		}
		if try == tries || pause(ctx, try) != nil {
			return fmt.Errorf("migrate database %s: %w", db.name, err)
		}
	}
}

// checkForm compares the newest migration that was applied with the newest
// that is known.
func (db *DB) checkForm(ctx context.Context, migrations fs.FS) error {
	provider, err := goose.NewProvider(db.dialect.goose, db.DB.DB, migrations)
	if err != nil {
		return fmt.Errorf("read migrations of database %s: %w", db.name, err)
	}
	sources := provider.ListSources()
	known := sources[len(sources)-1].Version // goose refuses to have none
	var applied int64
	if err := db.GetContext(ctx, &applied, `SELECT coalesce(max(version_id), 0) FROM goose_db_version`); err != nil {
		if sqliteNoTable(err) || postgresNoTable(err) {
			err = fmt.Errorf("%w (%w)", ErrAbsent, err)
		}
		return fmt.Errorf("open database %s: %w", db.name, err)
	}
	switch {
	case applied < known:
		return fmt.Errorf("open database %s: %w: an older one, whose next start brings it up to date", db.name, ErrForm)
	case applied > known:
		return fmt.Errorf("open database %s: %w: a newer one", db.name, ErrForm)
	}
	return nil
}

// InTx runs fn in a transaction and commits it, or rolls it back when fn
// fails or panics. Transactions happen as if one followed the other; to that
// end fn runs again from its beginning when another program was in its way, or
// when the connection to PostgreSQL broke and was made again. So it must have
// no effect but that on tx, must not use db itself or call InTx, must not wait
// for anything but the database, and must hand on every error of it: in
// PostgreSQL nothing can be done in a transaction after one. fn's own error is
// returned as it is.
//
// With ErrUnavailable, with ErrFull, and with any error of fn's, nothing was written. With
// ErrInDoubt, and when ctx ends during the commit, it is not known.
func (db *DB) InTx(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	if db.writing != nil {
		select {
		case db.writing <- struct{}{}:
			defer func() { <-db.writing }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return db.retry(ctx, func() error { return db.once(ctx, fn) })
}

// SelectContext is sqlx's, and reads again when the connection broke. It fails
// with ErrUnavailable when it cannot be made again.
func (db *DB) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	return db.retry(ctx, func() error {
		reflect.ValueOf(dest).Elem().SetLen(0) // what was read before the connection broke
		return db.DB.SelectContext(ctx, dest, query, args...)
	})
}

// GetContext is sqlx's, and reads again as SelectContext does.
func (db *DB) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	return db.retry(ctx, func() error { return db.DB.GetContext(ctx, dest, query, args...) })
}

// patience is how long something is run again that another program, or a
// broken connection, is in the way of. A server may restart meanwhile.
const patience = 30 * time.Second

// retry runs what may be run again from its beginning, while another program
// is in the way or the connection is broken; twice at least, because the first
// time may have taken long to find out.
func (db *DB) retry(ctx context.Context, run func() error) error {
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for try := 1; ; try++ {
		err := run()
		gone := err != nil && ctx.Err() == nil && db.gone(err) && !errors.Is(err, ErrInDoubt)
		if (gone || isBusy(err)) && (try == 1 || !over(enough)) && pause(ctx, try) == nil {
			continue
		}
		if gone {
			return fmt.Errorf("%w (%w)", ErrUnavailable, err)
		}
		if err != nil && sqliteFull(err) { // a full PostgreSQL is unavailable
			return fmt.Errorf("%w (%w)", ErrFull, err)
		}
		return err
	}
}

// over says whether a timer has ended, which it says once.
func over(t *time.Timer) bool {
	select {
	case <-t.C:
		return true
	default:
		return false
	}
}

// once runs fn in one transaction. An error says that there was none, but for
// ErrInDoubt.
func (db *DB) once(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	tx, err := db.BeginTxx(ctx, db.dialect.options)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := fn(tx); err != nil {
		return err
	}
	var number int64
	if db.dialect.number != "" {
		if err := tx.Get(&number, db.dialect.number); err != nil {
			return fmt.Errorf("number transaction: %w", err)
		}
	}
	if err = tx.Commit(); err == nil {
		return nil
	}
	if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil { // database/sql has rolled back for that
		err = ctx.Err()
	}
	if db.gone(err) {
		switch db.fate(ctx, number) {
		case committed:
			return nil
		case aborted:
		default:
			err = fmt.Errorf("%w (%w)", ErrInDoubt, err)
		}
	}
	return fmt.Errorf("commit transaction: %w", err)
}

// What PostgreSQL says of a transaction.
const (
	committed = "committed"
	aborted   = "aborted"
)

// fate asks over a new connection what became of a transaction during whose
// commit the last one broke. It returns nothing where nobody can say.
func (db *DB) fate(ctx context.Context, number int64) string {
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for try := 1; ; try++ {
		var fate string
		err := db.DB.GetContext(ctx, &fate, db.Rebind(db.dialect.fate), number)
		if err == nil && (fate == committed || fate == aborted) {
			return fate
		}
		if postgresFuture(err) {
			return aborted
		}
		if over(enough) || pause(ctx, try) != nil {
			return ""
		}
	}
}

// gone says whether err means that the connection broke, or cannot be made.
func (db *DB) gone(err error) bool { return db.dialect.fate != "" && isGone(err) }

// pause waits a little longer each time, up to half a second.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(min(time.Duration(try*try)*10*time.Millisecond, 500*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isBusy says whether err means that another program was in the way.
func isBusy(err error) bool { return sqliteBusy(err) || postgresBusy(err) }

// IsUnique says whether err means that a row of the same key exists.
func IsUnique(err error) bool { return sqliteUnique(err) || postgresUnique(err) }
