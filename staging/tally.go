package staging

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// tally adds entries up. Of a file with several names the bytes count once.
type tally struct {
	bytes, entries int64
	linked         map[inode]bool
}

type inode struct{ dev, ino uint64 }

// add takes an entry in and returns what it adds in bytes.
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

// String says what was added up.
func (t *tally) String() string {
	noun := "entries"
	if t.entries == 1 {
		noun = "entry"
	}
	return fmt.Sprintf("%s in %d %s", codalab.FormatSize(t.bytes), t.entries, noun)
}

// walker visits what is in a directory, directories before what they hold, in
// the order of names.
type walker struct {
	root *os.Root
	// skip names what is passed over, with all that it holds.
	skip  func(below string, d fs.DirEntry) bool
	visit func(below string, info fs.FileInfo) error
}

// walk walks through dir. What vanishes meanwhile is passed over.
func (w walker) walk(ctx context.Context, dir string) error {
	entries, err := list(w.root, dir)
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

// list lists a directory in the order of names. A pipe that took its place
// holds nobody.
func list(root *os.Root, dir string) ([]fs.DirEntry, error) {
	d, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, errors.Join(err, d.Close())
}

// upload tells how far one is, in bytes of what is packed. How much of the file
// that is being packed is on its way is not known; as much of it counts as has
// been sent in all, which is less.
type upload struct {
	tell  func(string)
	now   func() time.Time
	total tally

	mu       sync.Mutex
	done     tally
	last     int64 // bytes of the last entry in done
	sent     int64
	said     time.Time
	mark     time.Time // since when the rate is measured
	markDone int64
	rate     int64 // bytes a second; 0 while it is not known
}

const (
	tellEvery = 250 * time.Millisecond
	rateSpan  = 5 * time.Second
)

// packing says that an entry's turn has come: all before it are packed.
func (u *upload) packing(d fs.DirEntry) {
	info, err := d.Info()
	if err != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = u.done.add(info)
	u.say()
}

// sending says that n bytes more are on their way.
func (u *upload) sending(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent += int64(n)
	u.say()
}

// say tells how far it is, now and then. u.mu is held.
func (u *upload) say() {
	now := u.now()
	if !u.said.IsZero() && now.Sub(u.said) < tellEvery {
		return
	}
	u.said = now
	before := u.done.bytes - u.last
	done := min(max(before, min(u.sent, u.done.bytes)), u.total.bytes)
	switch span := now.Sub(u.mark); {
	case u.mark.IsZero():
		u.mark, u.markDone = now, done
	case span >= rateSpan || u.rate == 0 && span >= time.Second:
		u.rate = int64(float64(done-u.markDone) / span.Seconds())
		u.mark, u.markDone = now, done
	}
	said := fmt.Sprintf("Uploading results: %s of %s", codalab.FormatSize(done), codalab.FormatSize(u.total.bytes))
	if u.rate > 0 {
		said += fmt.Sprintf(" at %s/s", codalab.FormatSize(u.rate))
	}
	u.tell(said + ".")
}
