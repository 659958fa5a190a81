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

// manySteps is the number of directories through which Unpack walks rather than open the last one in one call.
const manySteps = 8

// tree is the directory tree into which an archive is unpacked. It keeps the current
// directory and its nearest parents open: the next entry is usually in the same directory, and
// walking there again would cost more than writing the entry. It reaches any other directory in
// one call of the system, at any depth, and walks there only where the system has no such call.
type tree struct {
	levels []level // the first is the root, which is always open
	opened int64   // calls that opened a directory
	// opening is called before a directory is opened. Its error ends the unpacking.
	opening func() error
	// beneath is openBeneath, but for tests.
	beneath func(dir *os.Root, below string) (*os.Root, error)
}

type level struct {
	name string
	dir  *os.Root // nil if it is closed
}

func newTree(root *os.Root, opening func() error) *tree {
	return &tree{levels: []level{{".", root}}, opening: opening, beneath: openBeneath}
}

func (t *tree) last() *level { return &t.levels[len(t.levels)-1] }

// near returns the deepest open directory that is above both a path below the root and the last directory that was
// entered. It also returns the path from there, and the directory's depth.
func (t *tree) near(path string) (dir *os.Root, below string, depth int) {
	dir, below = t.levels[0].dir, path
	rest := path
	for i, l := range t.levels[1:] {
		first, after, more := strings.Cut(rest, "/")
		if !more || first != l.name {
			break
		}
		if rest = after; l.dir != nil {
			dir, below, depth = l.dir, rest, i+1
		}
	}
	return dir, below, depth
}

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
	if err := t.jump(parts); err != nil {
		return nil, err
	}
	for _, name := range parts[len(t.levels)-1:] {
		if err := t.open(); err != nil {
			return nil, err
		}
		next, err := openSub(t.last().dir, name, count)
		if err != nil {
			return nil, err
		}
		if err := t.push(level{name, next}); err != nil {
			return nil, err
		}
	}
	return t.last().dir, nil
}

// open counts a call that opens a directory.
func (t *tree) open() error {
	t.opened++
	return t.opening()
}

// push adds a level. It closes the one that is too far above it.
func (t *tree) push(l level) error {
	t.levels = append(t.levels, l)
	far := len(t.levels) - 1 - maxOpen
	if far < 1 || t.levels[far].dir == nil {
		return nil
	}
	dir := t.levels[far].dir
	t.levels[far].dir = nil
	return dir.Close()
}

// jump goes on from the last level to the deepest directory on the way to parts that is there, if that is many
// directories away. Afterwards the last level is open. The directories between stay closed.
func (t *tree) jump(parts []string) error {
	at := len(t.levels) - 1
	for t.levels[at].dir == nil {
		at--
	}
	closed := len(t.levels) - 1 - at // they are there
	if closed == 0 && len(parts)-at <= manySteps {
		return nil
	}
	steps := parts[at:]
	there, n, err := t.deepest(t.levels[at].dir, steps)
	switch {
	case err != nil:
		return err
	case n < closed: // it cannot be said, or another process has removed some; a walk goes on
		return errors.Join(t.leaveTo(at), closeRoot(there))
	case there == nil:
		return nil
	}
	return t.reach(at, steps[:n], there)
}

// deepest opens the deepest directory on the way from dir by these steps, and returns its number of steps; 0 if none is
// there, or if the system has no call for that.
func (t *tree) deepest(dir *os.Root, steps []string) (found *os.Root, low int, err error) {
	for n, high := len(steps), len(steps); low < high; n = (low + high + 1) / 2 {
		if err := t.open(); err != nil {
			return nil, 0, errors.Join(err, closeRoot(found))
		}
		there, err := t.beneath(dir, strings.Join(steps[:n], "/"))
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, 0, closeRoot(found)
		}
		if err != nil {
			high = n - 1
			continue
		}
		if err := closeRoot(found); err != nil {
			return nil, 0, errors.Join(err, there.Close())
		}
		found, low = there, n
	}
	return found, low, nil
}

func closeRoot(dir *os.Root) error {
	if dir == nil {
		return nil
	}
	return dir.Close()
}

// reach makes an open directory the last level, which is steps away from the level at.
func (t *tree) reach(at int, steps []string, dir *os.Root) error {
	if err := t.leaveTo(at); err != nil {
		return errors.Join(err, dir.Close())
	}
	for _, name := range steps[:len(steps)-1] {
		if err := t.push(level{name, nil}); err != nil {
			return errors.Join(err, dir.Close())
		}
	}
	return t.push(level{steps[len(steps)-1], dir})
}

// leave goes up until at most keep levels are left. The last of them may be closed.
func (t *tree) leave(keep int) error {
	for len(t.levels) > keep {
		dir := t.last().dir
		t.levels = t.levels[:len(t.levels)-1]
		if dir != nil {
			if err := dir.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaveTo goes up to the level at.
func (t *tree) leaveTo(at int) error { return t.leave(at + 1) }

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
