package values

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/internal/rows"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Find returns the values in the contents at a path of root, in the order of their paths. name is the name of contents
// that are a file. The error is that of the disk; then some values may be missing.
func Find(root *os.Root, at, name string) ([]store.Value, error) {
	f := finder{root: root, at: at, entries: maxEntries, files: maxFiles, bytes: maxRead}
	info, err := root.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.IsDir():
		err = f.directory("", maxLevels)
	case info.Mode().IsRegular():
		err = f.file("", name, info.Size())
	}
	slices.SortFunc(f.found, func(a, b store.Value) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(f.found, func(a, b store.Value) bool { return a.Path == b.Path }), err
}

// finder finds the values of one bundle. Its numbers are what is left of the bounds.
type finder struct {
	root           *os.Root
	at             string
	entries, files int
	bytes          int64
	found          []store.Value
}

// directory looks for files in a directory and, behind its files, in its directories.
func (f *finder) directory(dir string, levels int) error {
	entries, err := f.list(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.Type().IsRegular() || kindOf(e.Name()) == 0 {
			continue
		}
		info, err := e.Info()
		if err == nil {
			err = f.file(path.Join(dir, e.Name()), e.Name(), info.Size())
		}
		errs = append(errs, err)
	}
	for _, e := range entries {
		if e.IsDir() && levels > 1 && !strings.HasPrefix(e.Name(), ".") {
			errs = append(errs, f.directory(path.Join(dir, e.Name()), levels-1))
		}
	}
	return errors.Join(errs...)
}

// list returns the entries of a directory in the order of their names, as many as are left.
func (f *finder) list(dir string) ([]fs.DirEntry, error) {
	if f.entries <= 0 {
		return nil, nil
	}
	d, err := f.root.Open(path.Join(f.at, dir))
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(f.entries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	f.entries -= len(entries)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, errors.Join(err, d.Close())
}

// file adds the values of a file. The path is relative to the contents.
func (f *finder) file(p, name string, size int64) error {
	kind := kindOf(name)
	if kind == 0 || f.files <= 0 || len(f.found) >= maxValues {
		return nil
	}
	f.files--
	prefix := "/" + p + ":"
	switch kind {
	case document:
		if size > maxFile {
			return nil
		}
		text, err := f.read(p, 0, size)
		f.add(prefix, parseDocument(text), 0)
		return err
	case table:
		row, err := f.lastRow(p, rows.KindOf(name), size)
		if row != nil {
			f.add(prefix+"-1:", row, 0)
		}
		return err
	}
	return nil
}

// lastRow reads the last row of a file of rows.
func (f *finder) lastRow(p string, kind rows.Kind, size int64) (map[string]any, error) {
	head := ""
	if kind == rows.CSV {
		var err error
		if head, err = f.read(p, 0, min(size, rows.MaxLine)); err != nil {
			return nil, err
		}
	}
	from := max(0, size-rows.MaxLine)
	end, err := f.read(p, from, size-from)
	return rows.Last(kind, head, end, size), err
}

// read reads a section of a file; nothing if too many bytes were read before.
func (f *finder) read(p string, offset, length int64) (string, error) {
	if f.bytes -= length; f.bytes < 0 {
		return "", nil
	}
	in, err := contents.Section(f.root, path.Join(f.at, p), offset, length)
	if errors.Is(err, contents.ErrNotFound) {
		return "", nil // it has become something else
	}
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(in)
	return string(data), errors.Join(err, in.Close())
}

// add adds a value, or those in a dictionary.
func (f *finder) add(at string, value any, level int) {
	if dict, ok := value.(map[string]any); ok && level < maxKeys {
		for _, key := range sortedKeys(dict) {
			inner := at + key
			if level > 0 {
				inner = at + "/" + key
			}
			f.add(inner, dict[key], level+1)
		}
		return
	}
	if level == 0 || len(f.found) >= maxValues || len(at) > maxPath || !isText(at) {
		return
	}
	text, number, ok := codalab.ScalarValue(value)
	if ok && len(text) <= maxText && isText(text) {
		f.found = append(f.found, store.Value{Path: at, Number: number, Text: text})
	}
}
