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

// ResultsName names the place for the results of a run whose worker shares this disk and puts
// them there itself. It becomes the bundle's Contents when the run has ended. Each assignment
// to a worker has its own, so that what an earlier worker still leaves is never taken for the
// later one's.
func (b Bundle) ResultsName() string {
	return b.UUID + "-r" + strconv.FormatInt(micros(b.Assigned), 36)
}

// MakeResults makes the place for a run's results, an empty directory, and returns its path.
// It may be there already.
func (s *Store) MakeResults(b Bundle) (string, error) {
	dir := filepath.Join(s.dir, "bundles", b.ResultsName())
	for _, d := range []string{dir, filepath.Join(dir, ContentsPath)} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make room for the results of bundle %s: %w", b.UUID, err)
		}
	}
	return filepath.Join(dir, ContentsPath), nil
}

// FlushResults brings what a worker has put into the place for a run's results to the disk and
// returns its size. ErrNotFound where there is no place, or nothing in it.
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
		return 0, fmt.Errorf("take the results of bundle %s: %w", b.UUID, err)
	}
	size, err := up.Flush()
	return size, errors.Join(err, up.Close())
}

// ContentsPlace is the path of a bundle's contents on this disk, for workers that share it;
// empty where it has none.
func (s *Store) ContentsPlace(b Bundle) string {
	if b.Contents == "" {
		return ""
	}
	return filepath.Join(s.dir, "bundles", b.Contents, ContentsPath)
}
