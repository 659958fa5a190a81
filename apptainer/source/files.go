package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// FilesBelow returns a Source.OpenFile that opens regular files below any of these directories. It
// follows symbolic links that stay below the same directory, even if the links change at the same
// time.
func FilesBelow(dirs ...string) func(path string) (*os.File, error) {
	return func(path string) (*os.File, error) {
		for _, dir := range dirs {
			below, err := filepath.Rel(dir, path)
			if err != nil || !filepath.IsLocal(below) {
				continue
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				return nil, err
			}
			f, err := root.OpenFile(below, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			return f, errors.Join(err, root.Close())
		}
		return nil, fmt.Errorf("images in %s may not be used here", filepath.Dir(path))
	}
}

func (src Source) openRegular(path string) (*os.File, error) {
	if src.OpenFile == nil {
		return nil, errors.New("images in files may not be used here")
	}
	f, err := src.OpenFile(path)
	if err != nil {
		return nil, fileError(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(fileError(err), f.Close())
	}
	return f, nil
}

// fileError makes those errors transient that a shared disk in trouble returns.
func fileError(err error) error {
	var number syscall.Errno
	transient := errors.As(err, &number) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) &&
		number != syscall.ENOTDIR && number != syscall.ELOOP && number != syscall.ENAMETOOLONG && number != syscall.EISDIR
	return plainError{text: err.Error(), cause: err, transient: transient}
}

// file is an open file of an image, read from an offset.
type file struct {
	io.Reader
	io.Closer

	size int64 // of the whole file
}

// files are the files of an image, in a directory or a tar file.
type files interface {
	// open opens a file at an offset that is at most its size.
	open(ctx context.Context, name string, offset int64) (file, error)
	// seekable reports whether reading from an offset costs nothing.
	seekable() bool
	close()
}

// directory is a directory of files.
type directory struct {
	source Source
	path   string
}

func (d directory) open(_ context.Context, name string, offset int64) (file, error) {
	f, err := d.source.openRegular(filepath.Join(d.path, name))
	if err != nil {
		return file{}, err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return file{}, errors.Join(fileError(err), f.Close())
	}
	return file{f, f, info.Size()}, nil
}

func (d directory) seekable() bool { return true }
func (d directory) close()         {}

func readFile(ctx context.Context, fs files, name string) ([]byte, error) {
	f, err := fs.open(ctx, name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if f.size > maxManifestBytes {
		return nil, fmt.Errorf("%s is of %d bytes, and at most %d are handled", strings.TrimPrefix(name, "/"), f.size, maxManifestBytes)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxManifestBytes))
	if err != nil {
		return nil, fileError(err)
	}
	return data, nil
}
