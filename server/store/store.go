// Package store keeps what a bundle service knows: users, worksheets and bundles in SQL, the
// bundles' contents as files beside it.
//
// # Layout of the data directory
//
//	lock            held by the one server that runs
//	codalab.db      the database (SQLite)
//	bundles/UUID-XXXXXXXX/contents
//	                one bundle's contents, a file or a directory
//
// Contents are written to a fresh directory below bundles/, flushed, and count from the moment
// on when a committed row names that directory; so a bundle's contents are there whole or not
// at all, and are replaced at once. Directories that no row names are left-overs, which Sweep
// removes.
//
// A Bundle is changed by Change and ChangeAll alone, in a transaction: read, decided by the
// caller's function, written. What one call of Change has committed survives a crash.
package store

import (
	"context"
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

// Why a call of the store fails.
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
	db  *sqldb.DB
	dir string
}

// Open opens the data directory dir, and creates it where it is missing. The caller closes it.
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

// Lock claims the data directory for the one server that may run on it, until unlock is called
// or the program ends. It fails with ErrLocked.
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

// micros is a moment as the database keeps it.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// moment is the reverse of micros.
func moment(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
