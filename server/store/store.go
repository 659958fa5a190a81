// Package store keeps the data of a bundle service: users, worksheets and bundles in SQL, and
// the bundles' contents as files beside the database.
//
// # Layout of the data directory
//
//	lock            held by the one server that runs
//	codalab.db      the database (SQLite)
//	bundles/UUID-XXXXXXXX/contents
//	                one bundle's contents, a file or a directory
//
// New contents are written to a new directory below bundles/ and flushed. They become the
// bundle's when a transaction writes the directory's name into the bundle's row. So a bundle
// has all of its contents or none, and new contents replace old ones at once. Sweep removes
// directories that no row names.
//
// Only Change and ChangeAll change a bundle. They read it, call the caller's function on it,
// and write it back, in one transaction. A change that Change has returned survives a crash.
package store

import (
	"context"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Errors of the store.
var (
	// ErrNotFound means that there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrExists means that the name or the key is taken.
	ErrExists = errors.New("exists already")
	// ErrLocked means that another server uses the data directory.
	ErrLocked = errors.New("another cl-server is using it")
)

// Store is an open data directory. It is safe for concurrent use, also by several programs, of
// which one serves (see Lock).
type Store struct {
	db    *sqldb.DB
	dir   string
	items itemIDs
}

// Open opens the data directory dir, and creates it if it is missing. The caller closes the
// Store.
func Open(ctx context.Context, dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "bundles"), 0o700); err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	db, err := sqldb.Open(ctx, filepath.Join(dir, "codalab.db"), sub)
	if err != nil {
		return nil, err
	}
	return &Store{db: db, dir: dir}, nil
}

// Close closes the database.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}

// Lock reserves the data directory for one server, until the server calls unlock or ends. It
// fails with ErrLocked if another server has it.
func (s *Store) Lock() (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, errors.Join(fmt.Errorf("lock data directory %s: %w", s.dir, err), f.Close())
	}
	return f.Close, nil
}

// Time is a moment. The database keeps it in Unix microseconds, a zero one as 0.
type Time struct{ time.Time }

// Value returns the moment for the database.
func (t Time) Value() (driver.Value, error) { return t.micros(), nil }

func (t Time) micros() int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Scan reads the moment from the database.
func (t *Time) Scan(value any) error {
	us, ok := value.(int64)
	if !ok {
		return fmt.Errorf("read a time: the database has %v", value)
	}
	*t = Time{}
	if us != 0 {
		t.Time = time.UnixMicro(us).UTC()
	}
	return nil
}
