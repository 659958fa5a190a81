package inputs

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
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Limits of a fingerprint: its entries, and its depth.
const (
	fingerprintEntries = 200_000
	fingerprintDepth   = 128
)

// fingerprint describes a file, or a directory with all its entries, by names, sizes and times. It
// follows no symbolic link below name. After reach entries or at the end of ctx it stops, and the
// result is Partial. For unchanged data, fingerprints with the same number of entries cover the
// same entries.
func fingerprint(ctx context.Context, name string, reach int64) (spool.Fingerprint, error) {
	p := printer{reach: reach, sum: sha256.New()}
	info, err := os.Stat(name)
	if err != nil {
		return p.print, err
	}
	if info.IsDir() {
		err = p.tree(ctx, name)
	} else {
		err = p.file(name, info)
	}
	p.print.Digest = hex.EncodeToString(p.sum.Sum(nil))
	return p.print, err
}

type printer struct {
	reach int64
	sum   hash.Hash
	print spool.Fingerprint
}

var errReached = errors.New("the limit of entries is reached")

func (p *printer) tree(ctx context.Context, name string) error {
	root, err := os.OpenRoot(name)
	if err != nil {
		return err
	}
	err = p.directory(ctx, root, ".")
	if errors.Is(err, errReached) {
		p.print.Partial, err = true, nil
	}
	return errors.Join(err, root.Close())
}

// file adds a file that is the whole data, if this process may read it.
func (p *printer) file(name string, info fs.FileInfo) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	p.entry(".", info)
	return f.Close()
}

// directory adds the entries of root, in the order of names. at is root's path.
func (p *printer) directory(ctx context.Context, root *os.Root, at string) error {
	names, err := p.names(root, at)
	if err != nil {
		return err
	}
	for _, name := range names {
		if p.print.Entries >= p.reach || ctx.Err() != nil {
			return errReached
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was just removed
		}
		if err != nil {
			return err
		}
		below := path.Join(at, name)
		p.entry(below, info)
		if info.IsDir() {
			if err := p.subdirectory(ctx, root, name, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// subdirectory adds a directory inside another. If this process may not read it, that becomes part
// of the fingerprint: the command may not read it either.
func (p *printer) subdirectory(ctx context.Context, root *os.Root, name, at string) error {
	if strings.Count(at, "/") > fingerprintDepth {
		p.print.Partial = true
		return nil
	}
	sub, err := root.OpenRoot(name)
	if err == nil {
		err = errors.Join(p.directory(ctx, sub, at), sub.Close())
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		p.add("%s\x00closed\n", at)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// names lists a directory. If it has more entries than a fingerprint may have, only its own time
// counts.
func (p *printer) names(root *os.Root, at string) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	most := int(fingerprintEntries - p.print.Entries)
	names, err := d.Readdirnames(most + 1)
	if errors.Is(err, io.EOF) {
		err = nil // an empty directory
	}
	if err == nil && len(names) > most {
		p.print.Partial, names = true, nil
		var info fs.FileInfo
		if info, err = d.Stat(); err == nil {
			p.add("%s\x00%d\n", at, info.ModTime().UnixNano())
		}
	}
	slices.Sort(names)
	return names, errors.Join(err, d.Close())
}

func (p *printer) entry(at string, info fs.FileInfo) {
	p.print.Entries++
	if info.IsDir() { // its size and time follow from its entries
		p.print.Directories++
		p.add("%s\x00d\n", at)
		return
	}
	if info.Mode().IsRegular() {
		p.print.Files++
		p.print.Bytes += info.Size()
		if info.ModTime().After(p.print.Newest) {
			p.print.Newest = info.ModTime().UTC()
		}
	}
	p.add("%s\x00%s %d %d\n", at, info.Mode().Type(), info.Size(), info.ModTime().UnixNano())
}

func (p *printer) add(format string, args ...any) {
	_, _ = fmt.Fprintf(p.sum, format, args...) // a hash returns no error
}

// reachOf returns the reach for a fingerprint that is compared with an earlier one.
func reachOf(earlier spool.Fingerprint) int64 {
	if earlier.Partial {
		return earlier.Entries
	}
	return fingerprintEntries
}

// differ reports whether two fingerprints prove that the data has changed. The later one must have
// the reach of the earlier.
func differ(earlier, later spool.Fingerprint) bool {
	short := later.Partial && later.Entries < earlier.Entries // it stopped early for lack of time
	return !short && (earlier.Digest != later.Digest || earlier.Partial != later.Partial)
}

func describeChange(earlier, later spool.Fingerprint) string {
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
	size := codalab.FormatSize(f.Bytes)
	if f.Bytes < 1<<10 {
		size += " bytes"
	}
	return fmt.Sprintf("%s%s (%s)", least, termtext.Count(f.Files, "file"), size)
}
