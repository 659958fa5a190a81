package apptainer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// FilesBelow gives a Registry.Open that opens regular files below any of these
// directories. Symbolic links are followed while they lead to what lies below
// the same directory, whatever changes meanwhile.
func FilesBelow(dirs ...string) func(path string) (*os.File, error) {
	return func(path string) (*os.File, error) {
		for _, dir := range dirs {
			below, err := filepath.Rel(dir, path)
			if err != nil || !filepath.IsLocal(below) {
				continue
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				return nil, err //nolint:wrapcheck // it names the file
			}
			f, err := root.OpenFile(below, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			return f, errors.Join(err, root.Close())
		}
		return nil, fmt.Errorf("images in %s may not be used here", filepath.Dir(path))
	}
}

// openFile opens a regular file, if it may be.
func (r Registry) openFile(path string) (*os.File, error) {
	if r.Open == nil {
		return nil, errors.New("images in files may not be used here")
	}
	f, err := r.Open(path)
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

// fileError says which errors of files may pass: those of a shared disk in
// trouble.
func fileError(err error) error {
	var number syscall.Errno
	transient := errors.As(err, &number) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) &&
		number != syscall.ENOTDIR && number != syscall.ELOOP && number != syscall.ENAMETOOLONG && number != syscall.EISDIR
	return sentence{text: err.Error(), cause: err, transient: transient}
}

// file is one of an image's files, open.
type file struct {
	*io.SectionReader
	io.Closer
}

// files are the files of an image: a directory, or a tar file.
type files interface {
	open(name string) (file, error)
	close()
}

// directory is a directory of files.
type directory struct {
	registry Registry
	path     string
}

func (d directory) open(name string) (file, error) {
	f, err := d.registry.openFile(filepath.Join(d.path, name))
	if err != nil {
		return file{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return file{}, errors.Join(fileError(err), f.Close())
	}
	return file{io.NewSectionReader(f, 0, info.Size()), f}, nil
}

func (d directory) close() {}

// archive is a tar file, each of whose files can be read from any byte.
type archive struct {
	f       *os.File
	entries map[string]archived
}

// archived is where a file lies in an archive, or what it is a link to.
type archived struct {
	offset, size int64
	link         string
}

// maxArchived bounds the memory that an archive's list takes.
const maxArchived = 100_000

// openArchive lists a tar file; of names that are there twice the last counts.
func (r Registry) openArchive(path string) (_ *archive, err error) {
	f, err := r.openFile(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	a := &archive{f: f, entries: map[string]archived{}}
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		switch {
		case err == io.EOF:
			return a, nil
		case err != nil && len(a.entries) == 0:
			return nil, sentence{text: path + " is not a tar file; one that is compressed has to be unpacked first", cause: err}
		case err != nil:
			return nil, fileError(fmt.Errorf("read %s: %w", path, err))
		case len(a.entries) == maxArchived:
			return nil, fmt.Errorf("%s has more than %d files in it", path, maxArchived)
		}
		if err := a.add(header); err != nil {
			return nil, fileError(fmt.Errorf("read %s: %w", path, err))
		}
	}
}

func (a *archive) add(header *tar.Header) error {
	name := path.Clean("/" + header.Name)
	switch header.Typeflag {
	case tar.TypeReg:
		if _, sparse := header.PAXRecords["GNU.sparse.major"]; sparse {
			return fmt.Errorf("%s is sparse", header.Name)
		}
		// The reader of the archive takes no more of the file than it has given.
		offset, err := a.f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err //nolint:wrapcheck // it names the file
		}
		a.entries[name] = archived{offset: offset, size: header.Size}
	case tar.TypeSymlink:
		a.entries[name] = archived{link: path.Join(path.Dir(name), header.Linkname)} //nolint:gosec // nothing is extracted
	case tar.TypeLink:
		a.entries[name] = archived{link: path.Clean("/" + header.Linkname)}
	case tar.TypeGNUSparse:
		return fmt.Errorf("%s is sparse", header.Name)
	}
	return nil
}

func (a *archive) open(name string) (file, error) {
	const links = 8 // docker save once had a link for a layer that came twice
	at := path.Clean("/" + name)
	for range links {
		e, ok := a.entries[at]
		switch {
		case !ok:
			return file{}, sentence{text: fmt.Sprintf("there is no %s in it", name), cause: fs.ErrNotExist}
		case e.link != "":
			at = e.link
		default:
			return file{io.NewSectionReader(a.f, e.offset, e.size), io.NopCloser(nil)}, nil
		}
	}
	return file{}, fmt.Errorf("%s in it is a link that leads nowhere", name)
}

func (a *archive) close() { _ = a.f.Close() }

// readFile reads a small file whole.
func readFile(ctx context.Context, fs files, name string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	f, err := fs.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if f.Size() > maxManifestBytes {
		return nil, fmt.Errorf("%s is of %d bytes, and at most %d are handled", strings.TrimPrefix(name, "/"), f.Size(), maxManifestBytes)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fileError(err)
	}
	return data, nil
}
