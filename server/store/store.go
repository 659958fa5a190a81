// Package store keeps the data of a bundle service: users, worksheets and bundles in SQL, and
// the bundles' contents as files in the data directory.
//
// # Layout of the data directory
//
//	lock            held by the one server that runs
//	codalab.db      the database (SQLite), unless it is in PostgreSQL
//	database-id     names the database in PostgreSQL
//	secrets-key     the key of users' secrets, unless cl-server was given another file; not in a backup
//	bundles/UUID-XXXXXXXX/contents
//	                one bundle's contents, a file or a directory
//	restoring       an unfinished restore; nothing opens the directory
//	importing       an unfinished import; nothing but an import opens the directory
//	backup.json     the directory is a complete backup; nothing opens it but Restore
//
// New contents are written to a new directory below bundles/ and flushed. They become the
// bundle's when a transaction writes the directory's name into the bundle's row. So a bundle
// has all of its contents or none, and new contents replace old ones at once. Sweep removes
// directories that no row names. Equal files of one owner's bundles are hard links: see CompleteUpload.
//
// Only Change and ChangeAll change a bundle. They read it, call the caller's function on it,
// and write it back, in one transaction. A change that Change has returned survives a crash.
//
// # SQLite and PostgreSQL
//
// The same statements serve both, as package sqldb describes. Truth values are integers, and
// PostgreSQL takes no truth value for an integer: a statement that writes one writes CASE WHEN
// :value THEN 1 ELSE 0 END.
//
// A data directory and a PostgreSQL database belong together: both hold the same random id.
// Open refuses any other pair. Without that, a server on the wrong database would find no bundle
// that names the directory's contents, and remove them.
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
	// ErrNotFound means that the row does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists means that the name or the key is taken.
	ErrExists = errors.New("exists already")
	// ErrTooMany means that there are as many as there may be.
	ErrTooMany = errors.New("too many")
	// ErrFullWorksheet means that a worksheet has MostItems.
	ErrFullWorksheet = errors.New("the worksheet is full")
	// ErrChanged means that something is no longer as its editor has read it.
	ErrChanged = errors.New("it has changed meanwhile")
	// ErrLocked means that another server uses the data directory or the database.
	ErrLocked = errors.New("another cl-server is using it")
	// ErrWrongDatabase means that the data directory and the database do not belong together.
	ErrWrongDatabase = errors.New("the data directory and the database do not belong together")
)

// Store is an open data directory. It is safe for concurrent use, also by several programs, of
// which one serves (see Lock).
type Store struct {
	// Failed receives the errors of work for which callers do not wait: removals, and searches for equal contents; nil drops
	// them. Set it before the store is used.
	Failed func(error)
	// Own receives the changes of bundles that the server has made by itself, after their commit; nil drops them. Set it
	// before the store is used.
	Own func([]Event)
	// Changed receives the owner and the uuid of each bundle that was made, changed or deleted, after the commit; nil drops
	// them. Set it before the store is used. It must not wait.
	Changed func(ownerID, uuid string)

	db       *sqldb.DB
	dir      string
	url      string // of a database in PostgreSQL; empty for the SQLite file in dir
	items    itemIDs
	removals removals
	uploads  openUploads
}

// Open opens the data directory dir with its SQLite database, and creates them if they are
// missing. The caller closes the Store.
func Open(ctx context.Context, dir string) (*Store, error) { return OpenDatabase(ctx, dir, "") }

// OpenDatabase is Open with a database in PostgreSQL, which its URL names; see sqldb.Open. An
// empty URL means the SQLite database. It fails with ErrWrongDatabase if the directory and the
// database do not belong together.
func OpenDatabase(ctx context.Context, dir, url string) (*Store, error) {
	if err := checkComplete(dir); err != nil {
		return nil, err
	}
	return openDatabase(ctx, dir, url)
}

func openDatabase(ctx context.Context, dir, url string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "bundles"), 0o700); err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	if err := checkKind(dir, url); err != nil {
		return nil, err
	}
	steps, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	where := url
	if url == "" {
		where = filepath.Join(dir, databaseFile)
	}
	db, err := sqldb.Open(ctx, where, steps)
	if err != nil {
		return nil, err
	}
	db.TakeTurns() // most transactions change the disk use of a few users
	s := &Store{db: db, dir: dir, url: url}
	if url != "" {
		err = s.checkPair(ctx)
	}
	if err == nil {
		err = s.fillColumns(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// Ping asks whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return rowError(s.db.GetContext(ctx, &one, `SELECT 1`), "ask the database")
}

// Close closes the database.
func (s *Store) Close() error {
	s.removals.close()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}

// Lock reserves the data directory and the database for one server, until the server calls
// unlock or ends. It fails with ErrLocked if another server has one of them.
func (s *Store) Lock(ctx context.Context) (unlock func() error, err error) {
	return lock(ctx, s.dir, s.url)
}

// OpenLocked is OpenDatabase for a server: it takes the lock first. A second server, perhaps of a newer version, must
// not bring the database of a running one up to date.
func OpenLocked(ctx context.Context, dir, url string) (s *Store, unlock func() error, err error) {
	if err := checkComplete(dir); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("open data directory: %w", err)
	}
	if err := checkKind(dir, url); err != nil {
		return nil, nil, err
	}
	if unlock, err = lock(ctx, dir, url); err != nil {
		return nil, nil, err
	}
	if s, err = openDatabase(ctx, dir, url); err != nil {
		return nil, nil, errors.Join(err, unlock())
	}
	return s, unlock, nil
}

func lock(ctx context.Context, dir, url string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, errors.Join(fmt.Errorf("lock data directory %s: %w", dir, err), f.Close())
	}
	if url == "" {
		return f.Close, nil
	}
	// Two hosts may share the directory by a disk without locks.
	release, err := sqldb.Lock(ctx, url)
	if errors.Is(err, sqldb.ErrLocked) {
		err = fmt.Errorf("lock database %s: %w", sqldb.Name(url), ErrLocked)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		release()
		return f.Close()
	}, nil
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

// changed passes bundles on to Changed.
func (s *Store) changed(bundles ...Bundle) {
	if s.Changed == nil {
		return
	}
	for _, b := range bundles {
		s.Changed(b.OwnerID, b.UUID)
	}
}
