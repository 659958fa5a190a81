// Package treewalk walks through trees of files that a hostile program may have made, and may change
// during the walk. A tree may have any depth, because a program may make a directory in a directory for ever: each
// entry takes the same time at any depth, and few directories are open at a time. Names are resolved in open
// directories, never as long paths, which the system refuses. No symbolic link is followed.
package treewalk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// MaxOpen is the largest number of directories that a walk has open.
const MaxOpen = 64

// Visitor has the functions that Walk calls. Only Entry must be set. An error of any of them ends the walk.
type Visitor struct {
	// Entry visits an entry of an open directory. If it returns true, Walk enters the entry, a directory.
	Entry func(dir int, name string) (enter bool, err error)
	// Open opens a directory to enter; nil means OpenDir.
	Open func(dir int, name string) (fd int, err error)
	// Failed gets the error of an entry that cannot be opened, or of an open directory, with the name ".", that cannot
	// be read. If it is nil, the error ends the walk.
	Failed func(dir int, name string, err error) error
	// Leave visits a directory after its entries. If it returns true, Walk enters the directory once more.
	Leave func(dir int, name string) (again bool, err error)
}

// Walk visits everything below a directory, which it opens by its name in an open one, or in unix.AT_FDCWD. It
// calls Leave for that directory, too, and does not call Entry for it. The order of the entries is that of the disk. Walk
// reads names in batches, and does not see entries that are made in a directory while it visits the last batch of that.
func Walk(dir int, name string, v Visitor) error {
	if v.Open == nil {
		v.Open = OpenDir
	}
	if v.Failed == nil {
		v.Failed = func(_ int, name string, err error) error {
			return &fs.PathError{Op: "read directory", Path: name, Err: err}
		}
	}
	w := walk{Visitor: v, above: dir}
	defer w.close()
	if err := w.enter(name); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

// OpenDir opens a directory in an open one. It does not block on a pipe in its place, which the system refuses before it opens it. The
// descriptor is a blocking one: package os would try to poll another.
func OpenDir(dir int, name string) (fd int, err error) {
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// Chmod changes the mode of an entry of an open directory. If the entry is a symbolic link, it fails.
func Chmod(dir int, name string, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Fchmodat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), mode, 0)
}

// IsGone reports whether an entry has vanished, or something else than a directory has its name now.
func IsGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// walk is one call of Walk.
type walk struct {
	Visitor

	above  int     // the directory with the first level
	levels []level // the first closed ones are closed, and the others open
	closed int
}

// level is a directory that the walk has entered.
type level struct {
	name    string
	file    *os.File // nil if it is closed
	fd      int      // of file
	id      id
	names   []string // of entries, not visited yet
	allRead bool     // names are the last ones
}

// id identifies a directory while it is a part of a path.
type id struct{ dev, ino uint64 }

func idOf(fd int) (id, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return id{uint64(st.Dev), st.Ino}, err //nolint:unconvert // of another size on some architectures
}

func (w *walk) last() *level { return &w.levels[len(w.levels)-1] }

// parent returns the directory that has the last level. It must be open.
func (w *walk) parent() int {
	if len(w.levels) == 1 {
		return w.above
	}
	return w.levels[len(w.levels)-2].fd
}

// step visits one entry of the last level, or leaves the level.
func (w *walk) step() error {
	l := w.last()
	if len(l.names) == 0 && !l.allRead {
		const some = 256
		if err := l.read(some); err != nil {
			if err := w.Failed(l.fd, ".", err); err != nil {
				return err
			}
		}
	}
	if len(l.names) == 0 {
		return w.leave()
	}
	name := l.names[0]
	l.names = l.names[1:]
	enter, err := w.Entry(l.fd, name)
	if err != nil || !enter {
		return err
	}
	return w.enter(name)
}

// read reads names, at most most of them unless that is negative.
func (l *level) read(most int) error {
	names, err := l.file.Readdirnames(most)
	l.names = append(l.names, names...)
	if l.allRead = err != nil || most < 0 || len(names) < most; errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// enter enters an entry of the last level.
func (w *walk) enter(name string) error {
	dir := w.above
	if len(w.levels) > 0 {
		dir = w.last().fd
	}
	fd, err := w.Open(dir, name)
	if err != nil {
		return w.Failed(dir, name, err)
	}
	l := level{name: name, file: os.NewFile(uintptr(fd), name), fd: fd}
	if l.id, err = idOf(fd); err != nil {
		_ = l.file.Close() // it was only read
		return w.Failed(dir, name, err)
	}
	w.levels = append(w.levels, l)
	if len(w.levels)-w.closed > MaxOpen {
		return w.closeFirst()
	}
	return nil
}

// closeFirst closes the uppermost open directory, after its names are read.
func (w *walk) closeFirst() error {
	l := &w.levels[w.closed]
	var err error
	if !l.allRead {
		err = l.read(-1)
	}
	_ = l.file.Close() // it was only read
	l.file = nil
	w.closed++
	if err != nil {
		return fmt.Errorf("read directory: %w", err)
	}
	return nil
}

// leave leaves the last level. It opens the level above if that is closed.
func (w *walk) leave() error {
	if above := len(w.levels) - 2; above >= 0 && above < w.closed {
		if err := w.openAbove(&w.levels[above]); err != nil {
			return err
		}
		w.closed--
	}
	dir, l := w.parent(), *w.last()
	_ = l.file.Close() // it was only read
	w.levels = w.levels[:len(w.levels)-1]
	if w.Leave == nil {
		return nil
	}
	again, err := w.Leave(dir, l.name)
	if err != nil || !again {
		return err
	}
	return w.enter(l.name)
}

// openAbove opens the level above the last one. The last one may be elsewhere then.
func (w *walk) openAbove(l *level) error {
	fd, err := OpenDir(w.last().fd, "..")
	if err != nil {
		return &fs.PathError{Op: "open the directory above", Path: w.last().name, Err: err}
	}
	l.file, l.fd = os.NewFile(uintptr(fd), l.name), fd
	if now, err := idOf(fd); err != nil || now != l.id {
		return errors.Join(fmt.Errorf("the directory %q was moved during the walk", w.last().name), err)
	}
	return nil
}

func (w *walk) close() {
	for _, l := range w.levels {
		if l.file != nil {
			_ = l.file.Close() // it was only read
		}
	}
}
