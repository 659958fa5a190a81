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
	d := describer{left: 1}
	out, err := d.describe(root, p)
	if err != nil || out.Type != codalab.TargetDirectory {
		return out, err
	}
	dir, err := root.OpenFile(p, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return out, classify(root, p, err)
	}
	out.Contents, out.Entries, err = page.entries(dir)
	if err = errors.Join(err, dir.Close()); err != nil {
		return codalab.TargetInfo{}, classify(root, p, err)
	}
	return out, nil
}

// entries describes the entries of the page, in their order, and returns the number of all names. Names that are no entries,
// as those of pipes, may come before any number of entries. So it describes the first of the names whenever it has read some
// thousands, and keeps those alone that are on the page of the names read so far.
func (page Page) entries(dir *os.File) (list []codalab.TargetInfo, total int, err error) {
	var names []string
	for {
		some, err := dir.Readdirnames(4096)
		for _, name := range some {
			if name > page.After {
				names = append(names, name)
			}
		}
		total += len(some)
		if end := errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist); end || len(names) > 4*page.First+4096 {
			list, err := page.first(dir, names)
			if end || err != nil {
				return list, total, err
			}
			names = names[:0]
			for _, e := range list {
				names = append(names, e.Name)
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

// first describes the first entries among some names, which it sorts.
func (page Page) first(dir *os.File, names []string) ([]codalab.TargetInfo, error) {
	slices.Sort(names)
	var out codalab.TargetInfo
	out.Contents = make([]codalab.TargetInfo, 0, min(len(names), page.First))
	d := describer{left: len(names), in: []*codalab.TargetInfo{&out}}
	for _, name := range names {
		if len(out.Contents) == page.First {
			break
		}
		if _, err := d.entry(int(dir.Fd()), name); err != nil {
			return nil, err
		}
	}
	return out.Contents, nil
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
