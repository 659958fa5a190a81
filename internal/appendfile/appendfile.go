// Package appendfile writes lines to a file to which it only ever appends, for records that must not be changed later.
//
// A line is one write to a file that is open for appending, and no buffer holds it back. A File never truncates or
// rewrites: a file of Linux may have the attribute "append only" (chattr +a) as long as it is not rotated. After a write
// that failed half-way, as on a full disk, the next line begins on a line of its own.
//
// A file that has its size is renamed to PATH.1, an older one to PATH.2 and so on, and the oldest is removed. If another
// program has moved the file away, such as logrotate, the next line makes it again.
package appendfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// Rotation says when a File is rotated.
type Rotation struct {
	// Size is the number of bytes that a file may have; 0 means that the File never renames anything.
	Size int64
	// Keep is the number of older files that are kept, at least 1.
	Keep int
	// Failed receives the errors of rotations. The lines go to the old file then. Failed must not block.
	Failed func(error)
}

// File is an open file. Several goroutines may use it, but only one program may rotate it.
type File struct {
	path     string
	rotation Rotation

	mu   sync.Mutex
	f    *os.File
	size int64
	torn bool // the file ends within a line
}

// Open opens a file, and creates it for its owner alone. It refuses one that is no regular file, and one that others may
// write: they could add lines.
func Open(path string, r Rotation) (*File, error) {
	a := &File{path: path, rotation: r}
	if err := a.open(); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *File) open() error {
	f, err := os.OpenFile(a.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", a.path, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("open %s: %w", a.path, err)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("open %s: it is no regular file", a.path)
	case info.Mode().Perm()&0o022 != 0:
		err = fmt.Errorf("open %s: others may write it (mode %04o): chmod go-w %s", a.path, info.Mode().Perm(), a.path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	last := []byte{'\n'}
	if info.Size() > 0 {
		if _, err := f.ReadAt(last, info.Size()-1); err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(fmt.Errorf("open %s: %w", a.path, err), f.Close())
		}
	}
	a.f, a.size, a.torn = f, info.Size(), last[0] != '\n'
	return nil
}

// Write appends a line, which ends with a newline.
func (a *File) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.prepare(int64(len(line))); err != nil {
		return 0, err
	}
	whole := line
	if a.torn {
		whole = append([]byte{'\n'}, line...)
	}
	n, err := a.f.Write(whole)
	a.size += int64(n)
	if err != nil {
		a.torn = a.torn || n > 0
		return 0, fmt.Errorf("append to %s: %w", a.path, err)
	}
	a.torn = false
	return len(line), nil
}

// prepare makes the file ready for a line: it opens the file again if that was moved away, and rotates it if it is full.
func (a *File) prepare(line int64) error {
	there, err := a.stillThere()
	if err != nil {
		return fmt.Errorf("append to %s: %w", a.path, err)
	}
	full := a.rotation.Size > 0 && a.size > 0 && a.size+line > a.rotation.Size
	if there && !full {
		return nil
	}
	if there {
		if err := a.rotate(); err != nil {
			a.rotation.Failed(fmt.Errorf("rotate %s: %w", a.path, err))
			return nil
		}
	}
	if err := a.close(); err != nil {
		return err
	}
	return a.open()
}

// stillThere reports whether the open file is the one that has the path.
func (a *File) stillThere() (bool, error) {
	if a.f == nil {
		return false, nil
	}
	at, err := os.Lstat(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	own, err := a.f.Stat()
	return err == nil && os.SameFile(at, own), err
}

// rotate renames the older files, and then the file.
func (a *File) rotate() error {
	if err := a.f.Sync(); err != nil {
		return err
	}
	for n := a.rotation.Keep; n > 1; n-- {
		err := os.Rename(a.older(n-1), a.older(n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(a.path, a.older(1))
}

func (a *File) older(n int) string { return a.path + "." + strconv.Itoa(n) }

func (a *File) close() error {
	if a.f == nil {
		return nil
	}
	err := a.f.Close()
	a.f = nil
	return err
}

// Close flushes the file to its disk, and closes it.
func (a *File) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.f == nil {
		return nil
	}
	if err := errors.Join(a.f.Sync(), a.close()); err != nil {
		return fmt.Errorf("close %s: %w", a.path, err)
	}
	return nil
}
