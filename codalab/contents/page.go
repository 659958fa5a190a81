package contents

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// mostNames bounds the names that are read for one Page.
const mostNames = 5_000_000

// Page chooses some of a directory's entries: the first ones by name, of those after a name.
type Page struct {
	First int
	After string
}

// InfoPage is Info for a directory of which only a page of entries is described, and any other target. It reads all names
// and keeps few, so that a directory may have more entries than Info describes.
func InfoPage(root *os.Root, p string, page Page) (codalab.TargetInfo, error) {
	p = clean(p)
	d := describer{left: 2 * page.First}
	out, err := d.describe(root, p)
	if err != nil || out.Type != codalab.TargetDirectory {
		return out, err
	}
	dir, err := root.OpenFile(p, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return out, classify(root, p, err)
	}
	names, total, err := page.names(dir)
	out.Contents, out.Entries = []codalab.TargetInfo{}, total
	d.in = []*codalab.TargetInfo{&out}
	for _, name := range names {
		if err == nil && len(out.Contents) < page.First {
			_, err = d.entry(int(dir.Fd()), name)
		}
	}
	if err = errors.Join(err, dir.Close()); err != nil {
		return codalab.TargetInfo{}, classify(root, p, err)
	}
	return out, nil
}

// names returns the first names of the page, in their order, twice as many as it has entries, since some may be no entries, and
// the number of all.
func (page Page) names(dir *os.File) (names []string, total int, err error) {
	for {
		some, err := dir.Readdirnames(4096)
		for _, name := range some {
			if name > page.After {
				names = append(names, name)
			}
		}
		total += len(some)
		if end := errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist); end || len(names) > 4*page.First+4096 {
			slices.Sort(names)
			names = slices.Clone(names[:min(len(names), 2*page.First)])
			if end {
				return names, total, nil
			}
		}
		switch {
		case err != nil:
			return nil, 0, err
		case total > mostNames:
			return nil, 0, fmt.Errorf("%w: more than %d", ErrTooMany, mostNames)
		}
	}
}

// Cut leaves of a description of all entries those of the page. Workers of other versions send such.
func (page Page) Cut(info *codalab.TargetInfo) {
	if info.Type != codalab.TargetDirectory || info.Entries > 0 {
		return
	}
	info.Entries = len(info.Contents)
	info.Contents = slices.DeleteFunc(info.Contents, func(e codalab.TargetInfo) bool { return e.Name <= page.After })
	slices.SortFunc(info.Contents, func(a, b codalab.TargetInfo) int { return strings.Compare(a.Name, b.Name) })
	info.Contents = info.Contents[:min(len(info.Contents), page.First)]
}
