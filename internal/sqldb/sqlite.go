package sqldb

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

func connectSQLite(path string, readOnly bool) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if readOnly {
		_, err = os.Stat(path)
	} else {
		err = touch(path)
	}
	if readOnly && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open database %s: %w", path, ErrAbsent)
	}
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	db, err := sqlx.Open("sqlite", dsn(path, readOnly))
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	limit(db)
	d := dialect{goose: goose.DialectSQLite3}
	return &DB{DB: db, dialect: d, name: path, writing: make(chan struct{}, 1)}, nil
}

// touch creates the file for its owner alone: databases hold password hashes.
// SQLite gives its side files the permissions of the main one.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// dsn asks for a flush of the disk at each commit (synchronous=FULL), which is
// what makes it survive a crash of the machine. Who only reads still opens the
// file for writing, because readers note themselves in its side files.
func dsn(path string, readOnly bool) string {
	pragmas := []string{"busy_timeout(5000)"} // first: the others may have to wait
	q := url.Values{"_txlock": {"immediate"}}
	if readOnly {
		q.Set("mode", "rw") // and do not create it
		pragmas = append(pragmas, "query_only(1)")
	} else {
		// Many small writes to the same pages: copying the log back less often
		// than SQLite's 1000 pages makes a tenth of the work go away.
		pragmas = append(pragmas, "journal_mode(WAL)", "foreign_keys(1)", "synchronous(FULL)", "wal_autocheckpoint(4000)")
	}
	q["_pragma"] = pragmas
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	return u.String()
}

func sqliteBusy(err error) bool {
	code := sqliteCode(err)
	return code&0xff == sqlite3.SQLITE_BUSY || code&0xff == sqlite3.SQLITE_LOCKED
}

func sqliteFull(err error) bool { return sqliteCode(err)&0xff == sqlite3.SQLITE_FULL }

func sqliteUnique(err error) bool {
	code := sqliteCode(err)
	return code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}

// sqliteNoTable may mean any mistake in a statement; SQLite has one code for all.
func sqliteNoTable(err error) bool { return sqliteCode(err) == sqlite3.SQLITE_ERROR }

func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}
