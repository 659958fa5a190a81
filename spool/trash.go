package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// Weigh walks through a leftover. It returns the space that it takes, and the time of its last change by the
// disk's clock. It omits directories without their owner's permissions. After an error the result is
// incomplete.
func (d Disk) Weigh(ctx context.Context, l Leftover) (bytes int64, touched time.Time, err error) {
	err = filetree.Each(ctx, l.Path, func(st *unix.Stat_t) error {
		touched = later(touched, time.Unix(st.Ctim.Unix()))
		bytes += st.Blocks * 512 // stat(2): blocks of 512 bytes
		return nil
	})
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("look through %s: %w", l.Path, err)
	}
	return bytes, touched, nil
}

// ErrTouched means that a leftover has come into use.
var ErrTouched = errors.New("it is in use again")

// PutAside renames a leftover within its directory, so that no reader sees a part of it, and returns it as
// trash. now is the disk's time. It fails with ErrTouched if entries were made in it since l.Touched.
// Temporary files and rings are not put aside.
func (d Disk) PutAside(l Leftover, now time.Time) (Leftover, error) {
	dir, name := filepath.Split(l.Path)
	trash := l
	trash.Kind, trash.Touched = LeftTrash, now
	trash.Path = filepath.Join(dir, trashPrefix+strconv.FormatInt(now.Unix(), 10)+"-"+name)
	if err := os.Rename(l.Path, trash.Path); err != nil {
		return Leftover{}, fmt.Errorf("put aside: %w", err)
	}
	// A renamed directory keeps the time of its content.
	if info, err := os.Lstat(trash.Path); err == nil && info.ModTime().After(l.Touched) {
		return Leftover{}, errors.Join(fmt.Errorf("put aside %s: %w", l.Path, ErrTouched), d.PutBack(trash))
	}
	return trash, nil
}

// PutBack gives trash its name again, unless that name is in use.
func (d Disk) PutBack(trash Leftover) error {
	dir, name := filepath.Split(trash.Path)
	_, was, ok := parseTrashName(name)
	if !ok {
		return fmt.Errorf("put back %s: %w", trash.Path, fs.ErrInvalid)
	}
	path := filepath.Join(dir, was)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put back %s: %w", path, errors.Join(fs.ErrExist, err))
	}
	// rename(2) replaces only an empty directory that was made in between.
	if err := os.Rename(trash.Path, path); err != nil {
		return fmt.Errorf("put back: %w", err)
	}
	return nil
}

// Discard removes a leftover for good. It is no error if it is gone.
func (d Disk) Discard(l Leftover) error {
	if l.Kind == LeftTemporary || l.Kind == LeftRing {
		if err := os.Remove(l.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("discard: %w", err)
		}
		return nil
	}
	if err := filetree.Remove(l.Path); err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	return nil
}
