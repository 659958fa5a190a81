package results

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// walker visits the entries of a directory, in the order of names, and a directory before its
// entries.
type walker struct {
	root *os.Root
	// skip reports whether to omit an entry, with all its entries.
	skip  func(below string, d fs.DirEntry) bool
	visit func(below string, info fs.FileInfo) error
}

// walk walks through dir. It ignores entries that vanish during the walk.
func (w walker) walk(ctx context.Context, dir string) error {
	entries, err := w.list(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		below := path.Join(dir, d.Name())
		if w.skip(below, d) {
			continue
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = w.visit(below, info)
		}
		if err == nil && info.IsDir() {
			err = w.walk(ctx, below)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list lists a directory. It does not block on a pipe that has replaced the directory.
func (w walker) list(dir string) ([]fs.DirEntry, error) {
	d, err := w.root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, errors.Join(err, d.Close())
}

// tally adds entries up. The bytes of a file with several names count once.
type tally struct {
	bytes, entries int64
	linked         map[inode]bool
}

type inode struct{ dev, ino uint64 }

func (t *tally) add(info fs.FileInfo) int64 {
	t.entries++
	if !info.Mode().IsRegular() {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if t.linked[id] {
			return 0
		}
		if t.linked == nil {
			t.linked = map[inode]bool{}
		}
		t.linked[id] = true
	}
	t.bytes += info.Size()
	return info.Size()
}

// String returns the sum in words.
func (t *tally) String() string {
	noun := "entries"
	if t.entries == 1 {
		noun = "entry"
	}
	return fmt.Sprintf("%s in %d %s", codalab.FormatSize(t.bytes), t.entries, noun)
}
