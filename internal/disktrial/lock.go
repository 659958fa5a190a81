package disktrial

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Lock is a kind of lock of files.
type Lock func(fd int) error

// Flock locks a whole file (flock(2)).
func Flock(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }

// RangeLock locks a file by fcntl(2). The lock belongs to the open file and not to the process, and excludes locks
// of processes, too.
func RangeLock(fd int) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// Hold makes a file, locks it, and returns a function that gives the lock back.
func Hold(path string, lock Lock) (release func(), err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	if err := lock(fd); err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = unix.Close(fd) }, nil // that gives the lock back
}

// ErrShared means that two holders have one lock.
var ErrShared = errors.New("two programs get one lock")

// Excluded returns nil if a file that another has locked cannot be locked, ErrShared if it can, or the error of
// the call.
func Excluded(path string, lock Lock) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }() // that gives a lock back
	switch err := lock(fd); {
	case err == nil:
		return ErrShared
	case errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EACCES):
		return nil
	default:
		return err
	}
}

// lockTwice locks a file twice, as two programs would.
func lockTwice(path string, lock Lock) error {
	release, err := Hold(path, lock)
	if err != nil {
		return err
	}
	defer release()
	return Excluded(path, lock)
}
