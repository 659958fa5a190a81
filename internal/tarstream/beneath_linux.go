package tarstream

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openBeneath opens a directory by its path below another one, in one call of the system. It follows no link. It fails with
// errors.ErrUnsupported where the system has no such call.
func openBeneath(dir *os.Root, below string) (*os.Root, error) {
	at, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = at.Close() }() // it is only used for the call
	fd, err := unix.Openat2(int(at.Fd()), below, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.E2BIG): // before Linux 5.6, or forbidden
		return nil, errors.ErrUnsupported
	case err != nil:
		return nil, &os.PathError{Op: "openat2", Path: below, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // the result has one of its own
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fd))
}

// linkBetween gives a file of one directory a name in another. It follows no link.
func linkBetween(from *os.Root, file string, to *os.Root, name string) error {
	source, err := from.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // it is only used for the call
	into, err := to.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = into.Close() }() // as above
	if err := unix.Linkat(int(source.Fd()), file, int(into.Fd()), name, 0); err != nil {
		return &os.LinkError{Op: "linkat", Old: file, New: name, Err: err}
	}
	return nil
}
