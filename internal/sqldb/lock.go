package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrLocked means that another program has locked the database.
var ErrLocked = errors.New("another program works on it")

// lockClass distinguishes this package's advisory locks from others in the same
// PostgreSQL database: "clsl" as a number.
const lockClass = 0x636c736c

// Lock claims a database, given as for Open, for this program until release is called or the program ends.
// Lock then fails with ErrLocked in any other program; Open still succeeds there. A program that calls Lock
// before Open changes nothing if another one has the lock.
//
// For an SQLite file Lock makes a file PATH.lock and locks it with flock(2). In PostgreSQL it takes an
// advisory lock on the schema, on a connection of its own. When that connection breaks the lock is lost
// without notice. So use Lock only to tell operators that they started a program twice, and guard the data
// itself against concurrent writers. A connection pooler has to keep sessions whole.
func Lock(ctx context.Context, where string) (release func(), err error) {
	if IsURL(where) {
		return lockSchema(ctx, where)
	}
	f, err := lockFile(ctx, where+".lock")
	if err != nil {
		return nil, fmt.Errorf("lock database %s: %w", where, err)
	}
	return func() {
		// A child process that is being started may hold the file open for a moment.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		_ = f.Close() // the lock goes with the file
	}, nil
}

// lockFile makes and locks a file. The program that had it locked may have removed it, and others may make
// a new one, so lockFile repeats until the locked file has the path.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		for try := 1; errors.Is(err, syscall.EWOULDBLOCK) && try <= 3 && backOff(ctx, try) == nil; try++ { // Locked may hold it for a moment
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		there := false
		if err == nil {
			there, err = hasPath(f, path)
		}
		if there {
			return f, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// hasPath reports whether a path is still that of an open file.
func hasPath(f *os.File, path string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	found, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, found), err
}

// Locked reports whether any program has locked a database, given as for Open. It
// changes nothing.
func Locked(ctx context.Context, where string) (bool, error) {
	if IsURL(where) {
		return schemaLocked(ctx, where)
	}
	f, err := os.Open(where + ".lock")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the lock of a database: %w", err)
	}
	defer func() { _ = f.Close() }() // the lock goes with the file
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return false, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return true, nil
	default:
		return false, fmt.Errorf("look for the lock of a database: %w", err)
	}
}

// schemaLocked looks for the advisory lock of lockSchema.
func schemaLocked(ctx context.Context, where string) (bool, error) {
	db, err := connectPostgres(ctx, where, true)
	if err != nil {
		return false, err
	}
	defer func() { _ = db.Close() }() // it was only read
	var locked bool
	err = db.GetContext(ctx, &locked, `SELECT EXISTS (SELECT 1 FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid::bigint = $1
		AND objid::bigint = hashtext(current_schema())::bigint & 4294967295
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`, lockClass)
	if err != nil {
		return false, fmt.Errorf("look for the lock of a database: %w", err)
	}
	return locked, nil
}

func lockSchema(ctx context.Context, where string) (func(), error) {
	db, err := connectPostgres(ctx, where, true)
	if err != nil {
		return nil, err
	}
	var taken bool
	conn, err := db.Conn(ctx)
	for try := 1; err == nil && !taken && try <= 4; try++ {
		if try > 1 && backOff(ctx, try-1) != nil { // the server may notice the end of a killed program a moment late
			break
		}
		err = conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1, hashtext(current_schema()))`, lockClass).Scan(&taken)
	}
	if err == nil && !taken {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock database %s: %w", db.name, err), db.Close())
	}
	return func() {
		// The server notices the end of a connection a moment late.
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock_all()`)
		_, _ = conn.Close(), db.Close() // the lock goes with the connection
	}, nil
}
