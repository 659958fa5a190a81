package filetree

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// companion is the place in a second tree that follows a walk through a first one. The tree may have any depth.
type companion struct {
	levels []companionDir // the directories that correspond to those in which the walk is
	closed int            // the first so many levels are closed
}

// companionDir is a directory of the second tree.
type companionDir struct {
	fd int // -1 if it is closed
	id [2]uint64
}

// last returns the innermost directory.
func (c *companion) last() int { return c.levels[len(c.levels)-1].fd }

// push adds a directory, when the walk enters its counterpart. pop or close closes it, also after an error of push.
func (c *companion) push(fd int) (err error) {
	c.levels = append(c.levels, companionDir{fd: fd})
	if c.levels[len(c.levels)-1].id, err = identify(fd); err != nil {
		return err
	}
	if len(c.levels)-c.closed > treewalk.MaxOpen {
		_ = unix.Close(c.levels[c.closed].fd) // only its entries were used
		c.levels[c.closed].fd = -1
		c.closed++
	}
	return nil
}

func identify(fd int) (id [2]uint64, err error) {
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return [2]uint64{uint64(st.Dev), st.Ino}, err //nolint:unconvert // of another size on some architectures
}

// pop leaves the innermost directory, and opens the one above if that is closed.
func (c *companion) pop() error {
	var err error
	if above := len(c.levels) - 2; above >= 0 && above < c.closed {
		l := &c.levels[above]
		if l.fd, err = treewalk.OpenDir(c.last(), ".."); err != nil {
			return &fs.PathError{Op: "open the directory above", Path: "..", Err: err}
		}
		c.closed--
		if now, err := identify(l.fd); err != nil || now != l.id {
			return errors.Join(errors.New("a directory was moved during the walk"), err)
		}
	}
	_ = unix.Close(c.last()) // only its entries were used
	c.levels = c.levels[:len(c.levels)-1]
	return nil
}

func (c *companion) close() {
	for _, l := range c.levels[c.closed:] {
		_ = unix.Close(l.fd) // after a failure
	}
}
