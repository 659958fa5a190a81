package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// walker visits the entries of a directory, in the order of names, and a directory before its
// entries.
type walker struct {
	// skip reports whether to omit an entry, with all its entries.
	skip  func(at place, d fs.DirEntry) bool
	visit func(at place, info fs.FileInfo) error
	// left bounds the entries that are listed, including skipped ones; nil for no bound.
	left *int
}

// place is the place of an entry: its name in an open directory, and its path below the walker's directory.
type place struct {
	dir   *os.Root
	name  string // a path of a few steps
	below string
	open  int // number of directories that are open above
}

func (at place) in(name string) place {
	return place{at.dir, path.Join(at.name, name), path.Join(at.below, name), at.open}
}

// The number of levels that a walker has open, and of further steps from an open level to an entry. A command may
// nest a thousand directories, and each entry takes the same time.
const (
	openLevels = 64
	mostSteps  = 32
)

// longestPath limits the memory for the paths of directories that are nested deeply. Programs can use paths
// of 4095 bytes.
const longestPath = 16 << 10

// walk walks through dir. It ignores entries that vanish during the walk.
func (w walker) walk(ctx context.Context, dir *os.Root) error {
	return w.directory(ctx, place{dir: dir, name: ".", below: "."})
}

func (w walker) directory(ctx context.Context, at place) error {
	entries, err := w.list(at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if at.name != "." && len(entries) > 0 && (at.open < openLevels || strings.Count(at.name, "/") >= mostSteps) {
		// If it fails, paths are only longer.
		if sub, err := at.dir.OpenRoot(at.name); err == nil {
			defer sub.Close()
			at = place{sub, ".", at.below, at.open + 1}
		}
	}
	for _, d := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.entry(ctx, at.in(d.Name()), d); err != nil {
			return err
		}
	}
	return nil
}

func (w walker) entry(ctx context.Context, at place, d fs.DirEntry) error {
	if w.skip(at, d) {
		return nil
	}
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(at.below) > longestPath {
		err = fmt.Errorf("%w: directories are nested too deeply, with a path of %d bytes, where %d are the most: %s…",
			tarstream.ErrTooLarge, len(at.below), longestPath, quoted(at.below[:100]))
	}
	if err == nil {
		err = w.visit(at, info)
	}
	if err == nil && info.IsDir() {
		err = w.directory(ctx, at)
	}
	return err
}

// list lists a directory. It does not block on a pipe that has replaced the directory.
func (w walker) list(at place) ([]fs.DirEntry, error) {
	d, err := at.dir.OpenFile(at.name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	most := -1
	if w.left != nil {
		most = *w.left + 1
	}
	entries, err := d.ReadDir(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if w.left != nil {
		if *w.left -= len(entries); *w.left < 0 {
			err = errors.Join(err, tarstream.ErrTooLarge)
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, errors.Join(err, d.Close())
}

// tally adds entries up. The bytes of a file with several names count once.
type tally struct {
	bytes, entries int64
	linked         map[inode]bool
}

type inode struct{ dev, ino uint64 }

func (t *tally) add(info fs.FileInfo) {
	t.entries++
	if !info.Mode().IsRegular() {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if t.linked[id] {
			return
		}
		if t.linked == nil {
			t.linked = map[inode]bool{}
		}
		t.linked[id] = true
	}
	t.bytes += info.Size()
}

// extent returns the least that a server counts for the entries.
func (t *tally) extent() codalab.Extent { return codalab.Extent{Bytes: t.bytes, Entries: t.entries} }

// String returns the sum in words.
func (t *tally) String() string {
	noun := "entries"
	if t.entries == 1 {
		noun = "entry"
	}
	size := codalab.FormatSize(t.bytes)
	if t.bytes < 1<<10 { // a number without a unit
		size = termtext.Count(t.bytes, "byte")
	}
	return fmt.Sprintf("%s in %d %s", size, t.entries, noun)
}
