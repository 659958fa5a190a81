package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
)

func connectSQLite(path string, readOnly bool) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if readOnly {
		_, err = os.Stat(path)
	} else {
		err = createFile(path)
	}
	if readOnly && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open database %s: %w", path, ErrAbsent)
	}
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	connector, err := newConnector(dsn(path, readOnly))
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	db := sqlx.NewDb(sql.OpenDB(connector), "sqlite")
	limitConnections(db)
	return &DB{DB: db, dialect: dialect{goose: goose.DialectSQLite3, snapshot: `BEGIN DEFERRED`}, name: path, writer: make(writerLock, 1), group: &group{}}, nil
}

// createFile creates a file that only its owner can read, because databases hold password
// hashes. SQLite gives its side files the same permissions.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// dsn asks for a flush at each commit (synchronous=FULL), so that commits survive a
// crash of the machine. A reader opens the file for writing, too: SQLite registers
// readers in its side files.
func dsn(path string, readOnly bool) string {
	pragmas := []string{"busy_timeout(5000)"} // first: the others may have to wait
	q := url.Values{"_txlock": {"immediate"}}
	if readOnly {
		q.Set("mode", "rw") // and do not create it
		pragmas = append(pragmas, "query_only(1)")
	} else {
		// Small writes meet the same pages again: copying the log back less often than
		// every 1000 pages, SQLite's default, saves a tenth of the work.
		// A file that is made now can be shrunk later; for others this does nothing.
		pragmas = append(pragmas, "auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "foreign_keys(1)", "synchronous(FULL)", "wal_autocheckpoint(4000)")
	}
	q["_pragma"] = pragmas
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	return u.String()
}

// Shrink returns free space of an SQLite file to the disk if more than a quarter of the file is
// unused: up to 16 MiB at a time. It does nothing for a file made without auto_vacuum, and for
// PostgreSQL, which vacuums by itself.
func (db *DB) Shrink(ctx context.Context) error {
	if db.dialect.goose != goose.DialectSQLite3 {
		return nil
	}
	var unused, all int64
	err := errors.Join(db.DB.GetContext(ctx, &unused, `PRAGMA freelist_count`), db.DB.GetContext(ctx, &all, `PRAGMA page_count`))
	if err != nil || unused*4 < all {
		return err
	}
	if err := db.writer.acquire(ctx); err != nil {
		return err
	}
	defer db.writer.release()
	if _, err = db.ExecContext(ctx, `PRAGMA incremental_vacuum(4096)`); err != nil {
		return fmt.Errorf("shrink database: %w", err)
	}
	return nil
}

// isSQLite reports whether err has a code of SQLite's, or an extension of that code.
func isSQLite(err error, code int) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code() == code || e.Code()&0xff == code)
}
