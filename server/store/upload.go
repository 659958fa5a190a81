package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// spoolPath is the directory for data that an upload must have complete before it unpacks.
const spoolPath = "spool"

// Upload is new contents of a bundle, while they are being written. It is not safe for
// concurrent use.
type Upload struct {
	// Name is the value for Bundle.Contents.
	Name string
	dir  string
	root *os.Root
	// alone means that the contents are a file, whose time is that of its arrival.
	alone bool
	// ended ends what CompleteUpload has begun; nil before it.
	ended func()
}

// NewUpload creates a directory for a bundle's new contents. The caller fills it by one of File,
// Archive and Zip, or through Root, calls CompleteUpload, writes its Name into the bundle, and closes it; or removes it.
func (s *Store) NewUpload(uuid string) (*Upload, error) {
	suffix := make([]byte, 4)
	_, _ = rand.Read(suffix) // never fails
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

// File stores r as a file.
func (u *Upload) File(r io.Reader) error {
	u.alone = true
	return u.write(ContentsPath, r)
}

func (u *Upload) write(name string, r io.Reader) error {
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("store file: %w", err)
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("store file: %w", err)
	}
	return nil
}

// Archive unpacks the tar stream r into a directory.
func (u *Upload) Archive(ctx context.Context, r io.Reader, limits tarstream.Limits) error {
	return u.tree(func(dir *os.Root) error {
		_, err := tarstream.Unpack(ctx, r, dir, limits)
		return err
	})
}

// Zip unpacks the zip archive r into a directory. It first stores all of r, since the directory of a
// zip archive is at its end; then it calls spooled.
func (u *Upload) Zip(ctx context.Context, r io.Reader, limits tarstream.Limits, spooled func() error) error {
	if err := u.write(spoolPath, r); err != nil {
		return err
	}
	if err := spooled(); err != nil {
		return err
	}
	f, err := u.root.Open(spoolPath)
	if err != nil {
		return fmt.Errorf("store directory: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		err = u.tree(func(dir *os.Root) error {
			_, err := tarstream.UnpackZip(ctx, f, info.Size(), dir, limits)
			return err
		})
	}
	return errors.Join(err, f.Close(), u.root.Remove(spoolPath))
}

// Spool makes a directory for data that is needed until the contents are complete, and returns its path. The
// caller removes it before CompleteUpload.
func (u *Upload) Spool() (string, error) {
	if err := u.root.Mkdir(spoolPath, 0o700); err != nil {
		return "", fmt.Errorf("spool upload: %w", err)
	}
	return filepath.Join(u.dir, spoolPath), nil
}

// Root is the upload's directory, in which the contents have the path ContentsPath. Close closes it.
func (u *Upload) Root() *os.Root { return u.root }

// tree makes the contents a directory, which fill fills.
func (u *Upload) tree(fill func(*os.Root) error) error {
	if err := u.root.Mkdir(ContentsPath, 0o755); err != nil {
		return fmt.Errorf("store directory: %w", err)
	}
	sub, err := u.root.OpenRoot(ContentsPath)
	if err != nil {
		return fmt.Errorf("store directory: %w", err)
	}
	return errors.Join(fill(sub), sub.Close())
}

// path is the path of the contents.
func (u *Upload) path() string { return filepath.Join(u.dir, ContentsPath) }

// measure returns the extent of the contents.
func (u *Upload) measure() (codalab.Extent, error) {
	extent, err := contents.Measure(u.root, ContentsPath)
	if err != nil {
		return codalab.Extent{}, fmt.Errorf("measure contents: %w", err)
	}
	return extent, nil
}

// flush flushes the contents to the disk.
func (u *Upload) flush() error {
	err := atomicfile.SyncTree(u.dir)
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(u.dir))
	}
	if err != nil {
		return fmt.Errorf("flush contents: %w", err)
	}
	return nil
}

// Close ends the upload and keeps the contents.
func (u *Upload) Close() error {
	if u.ended != nil {
		u.ended()
	}
	if err := u.root.Close(); err != nil {
		return fmt.Errorf("close upload: %w", err)
	}
	return nil
}

// Remove ends the upload and removes the contents.
func (u *Upload) Remove() error {
	return errors.Join(u.Close(), filetree.Remove(u.dir))
}
