package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// ResultsName is the name of the results directory of a run, into which a worker that shares
// this disk writes the results. It becomes the bundle's Contents at the run's end. Each
// assignment to a worker has a directory of its own, so that files of an earlier worker are
// never taken for those of a later one.
func (b Bundle) ResultsName() string {
	return b.UUID + "-r" + strconv.FormatInt(b.Assigned.micros(), 36)
}

// MakeResults creates the empty results directory of a run, unless it exists, and returns the
// path for its contents.
func (s *Store) MakeResults(b Bundle) (string, error) {
	dir := filepath.Join(s.dir, "bundles", b.ResultsName())
	for _, d := range []string{dir, filepath.Join(dir, ContentsPath)} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make results directory of bundle %s: %w", b.UUID, err)
		}
	}
	return filepath.Join(dir, ContentsPath), nil
}

// FlushResults flushes a run's results directory to the disk and returns its size; ErrNotFound
// if it does not exist or is empty.
func (s *Store) FlushResults(b Bundle) (int64, error) {
	up := &Upload{Name: b.ResultsName(), dir: filepath.Join(s.dir, "bundles", b.ResultsName())}
	d, err := os.Open(filepath.Join(up.dir, ContentsPath))
	if err == nil {
		_, err = d.Readdirnames(1)
		err = errors.Join(err, d.Close())
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) {
		return 0, ErrNotFound
	}
	if err == nil {
		up.root, err = os.OpenRoot(up.dir)
	}
	if err != nil {
		return 0, fmt.Errorf("flush results of bundle %s: %w", b.UUID, err)
	}
	size, err := up.Flush()
	return size, errors.Join(err, up.Close())
}

// ContentsFile is the path of a bundle's contents on this disk, a file or a directory; empty
// if there are none.
func (s *Store) ContentsFile(b Bundle) string {
	if b.Contents == "" {
		return ""
	}
	return filepath.Join(s.dir, "bundles", b.Contents, ContentsPath)
}
