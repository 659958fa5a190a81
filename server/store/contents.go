package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// ContentsPath is where a bundle's contents lie in the root that OpenContents returns. They
// lie one level below it, so that it may be a file, and so that a link in it that leads
// upwards finds nothing.
const ContentsPath = "contents"

// ErrTooLarge means contents that exceed the limit that they were given.
var ErrTooLarge = tarstream.ErrTooLarge

// OpenContents opens the directory of a bundle's contents for reading; the caller closes it.
// ErrNotFound where there are none.
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

// Upload is contents on their way in. It belongs to one goroutine.
type Upload struct {
	// Name is what Bundle.Contents is to become.
	Name string
	dir  string
	root *os.Root
}

// NewUpload makes a place for a bundle's new contents. The caller fills it, flushes it, writes
// its Name into the bundle, and closes it; or removes it.
func (s *Store) NewUpload(uuid string) (*Upload, error) {
	suffix := make([]byte, 4)
	if _, err := rand.Read(suffix); err != nil {
		return nil, fmt.Errorf("store contents of bundle %s: %w", uuid, err)
	}
	name := uuid + "-" + hex.EncodeToString(suffix)
	dir := filepath.Join(s.dir, "bundles", name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store contents of bundle %s: %w", uuid, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store contents of bundle %s: %w", uuid, err), os.Remove(dir))
	}
	return &Upload{Name: name, dir: dir, root: root}, nil
}

// File makes r the contents, as one file of at most limit bytes.
func (u *Upload) File(r io.Reader, limit int64) error {
	f, err := u.root.OpenFile(ContentsPath, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("store file: %w", err)
	}
	n, err := io.Copy(f, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("store file: %w", err)
	}
	return nil
}

// Archive makes what the tar stream r holds the contents, as a directory.
func (u *Upload) Archive(ctx context.Context, r io.Reader, limits tarstream.Limits) error {
	if err := u.root.Mkdir(ContentsPath, 0o755); err != nil {
		return fmt.Errorf("store directory: %w", err)
	}
	sub, err := u.root.OpenRoot(ContentsPath)
	if err != nil {
		return fmt.Errorf("store directory: %w", err)
	}
	_, err = tarstream.Unpack(ctx, r, sub, limits)
	return errors.Join(err, sub.Close())
}

// Flush brings the contents to the disk and returns their size, as data_size counts it.
func (u *Upload) Flush() (int64, error) {
	size, err := contents.Size(u.root, ContentsPath)
	if err == nil {
		err = atomicfile.SyncTree(u.dir)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(u.dir))
	}
	if err != nil {
		return 0, fmt.Errorf("flush contents: %w", err)
	}
	return size, nil
}

// Close ends the upload and keeps what it stored.
func (u *Upload) Close() error {
	if err := u.root.Close(); err != nil {
		return fmt.Errorf("close upload: %w", err)
	}
	return nil
}

// Remove ends the upload and removes what it stored.
func (u *Upload) Remove() error {
	return errors.Join(u.Close(), os.RemoveAll(u.dir))
}

// RemoveContents removes contents that no bundle names any more.
func (s *Store) RemoveContents(name string) error {
	if name == "" {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "bundles", name)); err != nil {
		return fmt.Errorf("remove contents: %w", err)
	}
	return nil
}

// Sweep removes contents that no bundle names: those of uploads that a crash cut off. Nothing
// may be uploading meanwhile. It returns how many there were.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	var names []string
	if err := s.db.SelectContext(ctx, &names, `SELECT contents FROM bundles WHERE contents <> ''`); err != nil {
		return 0, fmt.Errorf("sweep contents: %w", err)
	}
	named := make(map[string]bool, len(names))
	for _, name := range names {
		named[name] = true
	}
	// A worker may be about to put results into these.
	var underway []bundleRow
	if err := s.db.SelectContext(ctx, &underway, `
		SELECT uuid, assigned FROM bundles WHERE assigned <> 0 AND state NOT IN ('ready', 'failed', 'killed')`); err != nil {
		return 0, fmt.Errorf("sweep contents: %w", err)
	}
	for _, row := range underway {
		named[Bundle{UUID: row.UUID, Assigned: moment(row.Assigned)}.ResultsName()] = true
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, "bundles"))
	if err != nil {
		return 0, fmt.Errorf("sweep contents: %w", err)
	}
	removed := 0
	for _, e := range entries {
		if named[e.Name()] {
			continue
		}
		if err := s.RemoveContents(e.Name()); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
