// Package sqldb opens SQL databases: SQLite files, through sqlx, brought to
// their newest form by goose migrations before anyone sees them.
//
// Statements are written with "?" and passed through Rebind, columns hold
// integers and texts only (times are Unix numbers), and every write goes
// through InTx: so a second dialect is a second branch in Open and nothing
// else. A database is opened by several programs at once without harm: a
// writer that finds it busy waits, and tries again.
//
// It promises that what InTx has committed is there after a crash, of the
// machine too.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// DB is an open database. Reads go through sqlx's methods and run side by
// side; writes go through InTx. It is safe for concurrent use.
type DB struct {
	*sqlx.DB
	// writing is held by the one transaction that writes: SQLite has one
	// writer at a time anyway, and a channel wakes the next at once where
	// SQLite would sleep and look again.
	writing chan struct{}
}

// Open opens the SQLite file at path and brings it to the newest of the
// migrations, goose's *.sql files at the top of theirs. The file is created,
// readable by its owner only, where it is missing; its directory has to be
// there. The caller closes the database.
func Open(ctx context.Context, path string, migrations fs.FS) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := touch(path); err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	db, err := sqlx.Open("sqlite", dsn(path))
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	connections := max(4, runtime.GOMAXPROCS(0)+1)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	if err := migrate(ctx, path, migrations, db.DB); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &DB{DB: db, writing: make(chan struct{}, 1)}, nil
}

// touch creates the file for its owner alone: databases hold password hashes.
// SQLite gives its side files the permissions of the main one.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // the caller says which database
	}
	return f.Close() //nolint:wrapcheck // the caller says which database
}

// dsn asks for a flush of the disk at each commit (synchronous=FULL), which is
// what makes it survive a crash of the machine.
func dsn(path string) string {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(5000)", // first: the others may have to wait
		"journal_mode(WAL)",
		"foreign_keys(1)",
		"synchronous(FULL)",
	}}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	return u.String()
}

// migrate applies what is missing. Two programs may start at once: the one
// that finds the database busy, or the other's tables there already, looks
// again.
func migrate(ctx context.Context, path string, migrations fs.FS, db *sql.DB) error {
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations)
	if err != nil {
		return fmt.Errorf("read migrations of database %s: %w", path, err)
	}
	const tries = 5
	for try := 1; ; try++ {
		if _, err = provider.Up(ctx); err == nil {
			return nil
		}
		if try == tries || pause(ctx, try) != nil {
			return fmt.Errorf("migrate database %s: %w", path, err)
		}
	}
}

// InTx runs fn in a transaction and commits it, or rolls it back when fn
// fails or panics. One transaction runs at a time in this program; fn must
// not use db itself, or call InTx, and must not wait for anything but the
// database. When another program holds the database, fn runs again from its
// beginning, so it must have no effect but that on tx. fn's own error is
// returned as it is.
func (db *DB) InTx(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	select {
	case db.writing <- struct{}{}:
		defer func() { <-db.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	const tries = 5
	for try := 1; ; try++ {
		err := db.once(ctx, fn)
		if err == nil || !isBusy(err) || try == tries || pause(ctx, try) != nil {
			return err
		}
	}
}

func (db *DB) once(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}

// pause waits a little longer each time.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(time.Duration(try*try) * 10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isBusy says whether err means that another program was using the database.
func isBusy(err error) bool {
	code := errorCode(err)
	return code&0xff == sqlite3.SQLITE_BUSY || code&0xff == sqlite3.SQLITE_LOCKED
}

// IsUnique says whether err means that a row of the same key exists.
func IsUnique(err error) bool {
	code := errorCode(err)
	return code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}

func errorCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}
