package staging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// How much a fingerprint looks at: so many entries, and directories so deep in
// one another.
const (
	fingerprintEntries = 200_000
	fingerprintDepth   = 128
)

// fingerprint looks at a file, or at a directory and all in it, from outside.
// It follows no symbolic link below name, and ends early, Partial, after stop
// entries or with ctx. Two that looked at the same number of entries looked at
// the same ones.
func fingerprint(ctx context.Context, name string, stop int64) (spool.Fingerprint, error) {
	w := walk{ctx: ctx, stop: stop, sum: sha256.New()}
	info, err := os.Stat(name)
	if err != nil {
		return w.seen, err
	}
	if info.IsDir() {
		err = w.top(name)
	} else {
		err = w.file(name, info)
	}
	w.seen.Digest = hex.EncodeToString(w.sum.Sum(nil))
	return w.seen, err
}

// walk is a fingerprint in the making.
type walk struct {
	ctx  context.Context //nolint:containedctx // lives as long as one call of fingerprint
	stop int64
	sum  hash.Hash
	seen spool.Fingerprint
}

// errEnough ends a walk early.
var errEnough = errors.New("enough was seen")

func (w *walk) top(name string) error {
	root, err := os.OpenRoot(name)
	if err != nil {
		return err
	}
	err = w.directory(root, ".")
	if errors.Is(err, errEnough) {
		w.seen.Partial, err = true, nil
	}
	return errors.Join(err, root.Close())
}

// file looks at a file that is all there is.
func (w *walk) file(name string, info fs.FileInfo) error {
	f, err := os.Open(name) // whether it may be read
	if err != nil {
		return err
	}
	w.entry(".", info)
	return f.Close()
}

// directory looks at what root holds, in the order of names. at is its path.
func (w *walk) directory(root *os.Root, at string) error {
	names, err := w.names(root, at)
	if err != nil {
		return err
	}
	for _, name := range names {
		if w.seen.Entries >= w.stop || w.ctx.Err() != nil {
			return errEnough
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return err
		}
		below := path.Join(at, name)
		w.entry(below, info)
		if info.IsDir() {
			if err := w.enter(root, name, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter looks at a directory in another. One that may not be read counts as
// such: so it will for the command.
func (w *walk) enter(root *os.Root, name, at string) error {
	if strings.Count(at, "/") > fingerprintDepth {
		w.seen.Partial = true
		return nil
	}
	sub, err := root.OpenRoot(name)
	if err == nil {
		err = errors.Join(w.directory(sub, at), sub.Close())
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		w.add("%s\x00closed\n", at)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// names lists a directory. Of one with more entries than may be looked at only
// its own time counts.
func (w *walk) names(root *os.Root, at string) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	most := int(fingerprintEntries - w.seen.Entries)
	names, err := d.Readdirnames(most + 1)
	if errors.Is(err, io.EOF) {
		err = nil // an empty directory
	}
	if err == nil && len(names) > most {
		w.seen.Partial, names = true, nil
		var info fs.FileInfo
		if info, err = d.Stat(); err == nil {
			w.add("%s\x00%d\n", at, info.ModTime().UnixNano())
		}
	}
	slices.Sort(names)
	return names, errors.Join(err, d.Close())
}

func (w *walk) entry(at string, info fs.FileInfo) {
	w.seen.Entries++
	if info.IsDir() { // what its size and its time say, its entries do
		w.seen.Directories++
		w.add("%s\x00d\n", at)
		return
	}
	if info.Mode().IsRegular() {
		w.seen.Files++
		w.seen.Bytes += info.Size()
		if info.ModTime().After(w.seen.Newest) {
			w.seen.Newest = info.ModTime().UTC()
		}
	}
	w.add("%s\x00%s %d %d\n", at, info.Mode().Type(), info.Size(), info.ModTime().UnixNano())
}

func (w *walk) add(format string, args ...any) {
	fmt.Fprintf(w.sum, format, args...) //nolint:errcheck // a hash takes all
}

// reach is how many entries are to be looked at to compare with an earlier
// fingerprint.
func reach(earlier spool.Fingerprint) int64 {
	if earlier.Partial {
		return earlier.Entries
	}
	return fingerprintEntries
}

// differs says whether data has surely changed between two fingerprints, the
// later one to the reach of the earlier.
func differs(earlier, later spool.Fingerprint) bool {
	cut := later.Partial && later.Entries < earlier.Entries // it was too slow to tell
	return !cut && (earlier.Digest != later.Digest || earlier.Partial != later.Partial)
}

// change says how two fingerprints differ.
func change(earlier, later spool.Fingerprint) string {
	then, now := outline(earlier), outline(later)
	if then == now {
		return then + " then and now, but other names or times"
	}
	return then + " then, " + now + " now"
}

func outline(f spool.Fingerprint) string {
	least := ""
	if f.Partial {
		least = "at least "
	}
	files := "files"
	if f.Files == 1 {
		files = "file"
	}
	size := codalab.FormatSize(f.Bytes)
	if f.Bytes < 1<<10 {
		size += " bytes"
	}
	return fmt.Sprintf("%s%d %s (%s)", least, f.Files, files, size)
}
