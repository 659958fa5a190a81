package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/diskuse"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// treeDepth limits the depth of a tree. A deeper directory is fetched as one archive.
const treeDepth = 64

var errNoTree = errors.New("the description of the directory cannot be used")

type entry struct {
	path string // relative to the directory; "." for itself
	codalab.TargetInfo
	in []*entry // entries of a directory
	// Totals of a file, or of all files below a directory.
	files, bytes int64
	// had counts the bytes that are already fetched.
	had int64
	// tried is set when the directory was requested as an archive.
	tried bool
}

// tree is the server's description of a directory.
type tree struct {
	root *entry
	all  []*entry // each directory before its entries; the root is the first
}

// newTree makes a tree from a server's description. It returns an error unless all of it is
// reliable.
func newTree(info codalab.TargetInfo, limits tarstream.Limits) (*tree, error) {
	t := &tree{}
	var err error
	if t.root, err = t.add(".", info); err != nil {
		return nil, err
	}
	if limits.Entries > 0 && int64(len(t.all)-1) > limits.Entries {
		return nil, &tarstream.LimitError{Limits: tarstream.Limits{Entries: limits.Entries}}
	}
	if limits.Bytes > 0 && t.root.bytes > limits.Bytes {
		return nil, &tarstream.LimitError{Limits: tarstream.Limits{Bytes: limits.Bytes}}
	}
	return t, nil
}

func (t *tree) add(at string, info codalab.TargetInfo) (*entry, error) {
	e := &entry{path: at, TargetInfo: info}
	t.all = append(t.all, e)
	switch {
	case info.Type == codalab.TargetFile && info.Size >= 0:
		e.files, e.bytes = 1, info.Size
		return e, nil
	case info.Type == codalab.TargetLink && info.Link != "" && utf8.ValidString(info.Link) && !strings.ContainsRune(info.Link, utf8.RuneError):
		return e, nil
	case info.Type != codalab.TargetDirectory || info.Contents == nil:
		return nil, fmt.Errorf("%w: it does not describe %q", errNoTree, at)
	}
	names := map[string]bool{}
	for _, inner := range info.Contents {
		if !isName(inner.Name) || names[inner.Name] {
			return nil, fmt.Errorf("%w: an entry with the name %q", errNoTree, inner.Name)
		}
		names[inner.Name] = true
		below, err := t.add(path.Join(at, inner.Name), inner)
		if err != nil {
			return nil, err
		}
		e.in = append(e.in, below)
		e.files += below.files
		e.bytes = diskuse.Add(e.bytes, below.bytes)
	}
	e.Contents = nil
	return e, nil
}

// isName reports whether a name in a description is the name of one entry. JSON has replacement characters
// in the place of invalid UTF-8.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") &&
		utf8.ValidString(name) && !strings.ContainsRune(name, utf8.RuneError)
}

// missing lists the entries to fetch.
type missing struct {
	archives []*entry // directories without any fetched file
	files    []*entry
	bytes    int64
}

func (m missing) empty() bool { return len(m.archives)+len(m.files) == 0 }

// isCostly reports whether the whole directory costs no more than its missing part. The whole is
// then better, because its archive has more information than a tree. A request counts as a fixed
// number of bytes. Many missing bytes are still fetched separately, so that the next break costs
// little.
func (m missing) isCostly(whole int64) bool {
	const (
		request = 256 << 10
		many    = 64 << 20
	)
	requests := int64(len(m.archives)+len(m.files)) * request
	return m.bytes+requests >= whole && (whole < many || requests >= whole/8)
}

// missing compares the tree with the journal.
func (t *tree) missing(there remembered) missing {
	var m missing
	t.count(t.root, there)
	m.add(t.root)
	return m
}

func (t *tree) count(e *entry, there remembered) int64 {
	switch e.Type {
	case codalab.TargetFile:
		e.had = 0
		if n, ok := there.whole[e.path]; ok && n == e.Size {
			e.had = max(n, 1) // an empty file counts, too
		} else if n := there.parts[e.path]; n <= e.Size {
			e.had = n
		}
	case codalab.TargetDirectory:
		e.had = 0
		for _, inner := range e.in {
			e.had += t.count(inner, there)
		}
	case codalab.TargetLink:
	}
	return e.had
}

func (m *missing) add(e *entry) {
	switch {
	case e.Type == codalab.TargetLink:
	case e.Type == codalab.TargetFile && e.had < max(e.Size, 1):
		m.files = append(m.files, e)
		m.bytes += e.Size - e.had
	case e.Type == codalab.TargetDirectory && e.had == 0 && e.files > 1 && !e.tried:
		m.archives = append(m.archives, e)
		m.bytes += e.bytes
	case e.Type == codalab.TargetDirectory:
		for _, inner := range e.in {
			m.add(inner)
		}
	}
}

// makeTree makes the missing directories and links of the tree.
func (t *tree) makeTree(root *os.Root) error {
	for _, e := range t.all[1:] {
		var err error
		switch e.Type {
		case codalab.TargetDirectory:
			if err = root.Mkdir(e.path, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
				err = isDirectory(root, e.path)
			}
			if err == nil {
				err = root.Chmod(e.path, fileMode(e.TargetInfo)|0o700)
			}
		case codalab.TargetLink:
			if err = root.Symlink(e.Link, e.path); errors.Is(err, fs.ErrExist) {
				err = isLink(root, e.path, e.Link)
			}
		case codalab.TargetFile:
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", e.path, err)
		}
	}
	return nil
}

func isDirectory(root *os.Root, name string) error {
	if info, err := root.Lstat(name); err != nil || info.IsDir() {
		return err
	}
	return fmt.Errorf("%w: the unpacked entry is not a directory", errNoTree)
}

func isLink(root *os.Root, name, to string) error {
	if got, err := root.Readlink(name); err == nil && got == to {
		return nil
	}
	return fmt.Errorf("%w: the unpacked entry is not that link", errNoTree)
}

// verify checks that root has exactly the entries of the tree, with their types and sizes.
func (t *tree) verify(root *os.Root) error {
	listed := make(map[string]*entry, len(t.all))
	for _, e := range t.all {
		listed[e.path] = e
	}
	found := 0
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		e := listed[name]
		if e == nil {
			return fmt.Errorf("%w: it does not describe %q, which was unpacked", errNoTree, name)
		}
		found++
		want := map[codalab.TargetType]fs.FileMode{codalab.TargetDirectory: fs.ModeDir, codalab.TargetLink: fs.ModeSymlink}[e.Type]
		info, err := d.Info()
		if err == nil && (info.Mode().Type() != want || e.Type == codalab.TargetFile && info.Size() != e.Size) {
			err = fmt.Errorf("%w: %q differs", errNoTree, name)
		}
		return err
	})
	if err == nil && found != len(t.all) {
		err = fmt.Errorf("%w: it lists %d entries, and %d arrived", errNoTree, len(t.all), found)
	}
	return err
}
