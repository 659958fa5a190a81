package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// ContentsPath is the path of a bundle's contents in the root that OpenContents returns. The extra level
// allows contents that are a file, and makes a link in the contents that leads upwards a dead link.
const ContentsPath = "contents"

// ErrTooLarge means that contents exceed their limit.
var ErrTooLarge = tarstream.ErrTooLarge

// OpenContents opens the directory of a bundle's contents for reading; ErrNotFound if there
// are none. The caller closes it.
func (s *Store) OpenContents(b Bundle) (*os.Root, error) {
	if b.Contents == "" {
		return nil, fmt.Errorf("open contents of bundle %s: %w", b.UUID, ErrNotFound)
	}
	root, err := os.OpenRoot(filepath.Join(s.dir, "bundles", b.Contents))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open contents of bundle %s: %w", b.UUID, err)
	}
	return root, nil
}

// RemoveContents removes contents that no bundle names any more. An empty name means none.
func (s *Store) RemoveContents(name string) error {
	if name == "" {
		return nil
	}
	if err := filetree.Remove(filepath.Join(s.dir, "bundles", name)); err != nil {
		return fmt.Errorf("remove contents: %w", err)
	}
	return nil
}

// Sweep removes contents that no bundle names: those of uploads that a crash interrupted. It leaves those
// that RemoveLater removes. There must be no concurrent upload. It returns the number of removed contents.
// It fails with ErrWrongDatabase if there are contents, and the database has never had a bundle.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	names, err := s.unnamed(ctx)
	if err == nil && len(names) > 0 {
		err = s.checkUsed(ctx)
	}
	if err != nil {
		return 0, err
	}
	for i, name := range names {
		if err := s.RemoveContents(name); err != nil {
			return i, err
		}
	}
	return len(names), nil
}

// unnamed returns the names of contents that no bundle names, except those that RemoveLater removes.
func (s *Store) unnamed(ctx context.Context) ([]string, error) {
	names, err := s.contentsNames(ctx)
	if err != nil {
		return nil, err
	}
	named := make(map[string]bool, len(names))
	for _, name := range names {
		named[name] = true
	}
	for _, name := range s.removals.waiting() {
		named[name] = true // is removed already
	}
	// Workers may write results into these.
	var underway []Bundle
	if err := s.db.SelectContext(ctx, &underway, `
		SELECT uuid, assigned FROM bundles WHERE assigned <> 0 AND state NOT IN ('ready', 'failed', 'killed')`); err != nil {
		return nil, fmt.Errorf("sweep contents: %w", err)
	}
	for _, b := range underway {
		named[b.LocationName()] = true
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, "bundles"))
	if err != nil {
		return nil, fmt.Errorf("sweep contents: %w", err)
	}
	var unnamed []string
	for _, e := range entries {
		if !named[e.Name()] {
			unnamed = append(unnamed, e.Name())
		}
	}
	return unnamed, nil
}

// checkUsed refuses a database that has never had a bundle.
func (s *Store) checkUsed(ctx context.Context) error {
	var used bool
	err := s.db.GetContext(ctx, &used, `SELECT EXISTS (SELECT 1 FROM bundles) OR EXISTS (SELECT 1 FROM deleted_bundles)`)
	if err == nil && !used {
		err = fmt.Errorf("%w: %s has contents of bundles, and the database has no bundles", ErrWrongDatabase, s.dir)
	}
	if err != nil {
		return fmt.Errorf("sweep contents: %w", err)
	}
	return nil
}

// LocationName is the name of a run's location, the directory into which a worker that shares
// this disk writes the results. It becomes the bundle's Contents at the run's end. Each
// assignment to a worker has a directory of its own, so that files of an earlier worker are
// never taken for those of a later one.
func (b Bundle) LocationName() string {
	return b.UUID + "-r" + strconv.FormatInt(b.Assigned.micros(), 36)
}

// MakeLocation creates the empty location of a run, unless it exists, and returns the
// path for its contents.
func (s *Store) MakeLocation(b Bundle) (string, error) {
	dir := filepath.Join(s.dir, "bundles", b.LocationName())
	for _, d := range []string{dir, filepath.Join(dir, ContentsPath)} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make location of bundle %s: %w", b.UUID, err)
		}
	}
	return filepath.Join(dir, ContentsPath), nil
}

// FlushLocation flushes a run's location to the disk and returns its extent; ErrNotFound
// if it does not exist or is empty.
func (s *Store) FlushLocation(b Bundle) (codalab.Extent, error) {
	up := &Upload{Name: b.LocationName(), dir: filepath.Join(s.dir, "bundles", b.LocationName())}
	d, err := os.Open(filepath.Join(up.dir, ContentsPath))
	if err == nil {
		_, err = d.Readdirnames(1)
		err = errors.Join(err, d.Close())
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) {
		return codalab.Extent{}, ErrNotFound
	}
	if err == nil {
		up.root, err = os.OpenRoot(up.dir)
	}
	if err != nil {
		return codalab.Extent{}, fmt.Errorf("flush results of bundle %s: %w", b.UUID, err)
	}
	extent, err := up.measure()
	if err == nil {
		err = up.flush()
	}
	return extent, errors.Join(err, up.Close())
}

// ContentsFile is the path of a bundle's contents on this disk, a file or a directory; empty
// if there are none.
func (s *Store) ContentsFile(b Bundle) string {
	if b.Contents == "" {
		return ""
	}
	return filepath.Join(s.dir, "bundles", b.Contents, ContentsPath)
}
