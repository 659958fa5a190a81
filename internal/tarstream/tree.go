package tarstream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// maxOpen is the largest number of directory levels that are kept open: most trees have
// fewer, and several streams at a time can afford it.
const maxOpen = 64

// maxSteps is the largest number of directories through which Pack reaches an entry from an open one. Below
// maxOpen levels, it keeps each level open that is so deep below the last one. Otherwise a tree of a
// thousand levels would take a thousand times as long as a flat one.
const maxSteps = 32

// tree is the directory tree into which an archive is unpacked. It keeps the current
// directory and its parents open: the next entry is usually in the same directory, and
// walking there again would cost more than writing the entry.
type tree struct {
	levels []level // the first is the root
	opened int64   // directories, one for each part of a path
}

type level struct {
	name string
	dir  *os.Root // nil if it was closed since the tree is deep
}

func newTree(root *os.Root) *tree { return &tree{levels: []level{{".", root}}} }

func (t *tree) root() *os.Root { return t.levels[0].dir }

// enter goes to a directory, by its clean path below the root, and returns it; the result is
// valid until the next call. It makes missing directories, and calls count for each. It
// follows no link.
func (t *tree) enter(dir string, count func() error) (*os.Root, error) {
	var parts []string
	if dir != "." {
		parts = strings.Split(dir, "/")
	}
	same := 0
	for same < len(parts) && same+1 < len(t.levels) && t.levels[same+1].name == parts[same] {
		same++
	}
	if err := t.leave(same + 1); err != nil {
		return nil, err
	}
	for _, name := range parts[len(t.levels)-1:] {
		t.opened++
		next, err := openSub(t.levels[len(t.levels)-1].dir, name, count)
		if err != nil {
			return nil, err
		}
		t.levels = append(t.levels, level{name, next})
		if err := t.closeAbove(); err != nil {
			return nil, err
		}
	}
	return t.levels[len(t.levels)-1].dir, nil
}

// leave goes up until at most keep levels are left, and the last of them is open.
func (t *tree) leave(keep int) error {
	for last := len(t.levels) - 1; last >= keep || t.levels[last].dir == nil; last-- {
		if dir := t.levels[last].dir; dir != nil {
			if err := dir.Close(); err != nil {
				return err
			}
		}
		t.levels = t.levels[:last]
	}
	return nil
}

// closeAbove closes the last but one directory of a deep tree.
func (t *tree) closeAbove() error {
	above := len(t.levels) - 2
	if above < maxOpen {
		return nil
	}
	dir := t.levels[above].dir
	t.levels[above].dir = nil
	return dir.Close()
}

// close closes all directories but the root, which is the caller's.
func (t *tree) close() error { return t.leave(1) }

// openSub opens a directory in another, and makes it if it is missing.
func openSub(dir *os.Root, name string, count func() error) (*os.Root, error) {
	info, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := count(); err != nil {
			return nil, err
		}
		if err := dir.Mkdir(name, 0o755); err != nil {
			return nil, classify(err)
		}
	case err != nil:
		return nil, classify(err)
	case !info.IsDir():
		return nil, fmt.Errorf("%w: a path through the file or link %s", ErrUnsafe, printable(name))
	}
	return dir.OpenRoot(name)
}
