package initproc

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/seccomp"
)

// maxOthers and maxOthersBytes are more than a SIF of this project has (apptainer/flatten:
// maxOthers).
const (
	maxOthers      = 4 << 10
	maxOthersBytes = 16 << 20
)

// addOthers puts the image's files of other owners than root into the upper directory of the
// overlay, where they belong to root. In the image they belong to ids that a namespace with one id
// does not have, and the kernel lets nobody read, change, replace or remove such files
// (fs/namei.c: may_delete; fs/inode.c: inode_owner_or_capable).
func (r *Root) addOthers() error {
	if r.Others.Size == 0 || seccomp.OnlyRoot() != seccomp.Root {
		return nil
	}
	f, err := openSIF(r.SIF)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	upper, err := os.OpenRoot(filepath.Join(r.Process.PrivateDir, UpperDir))
	if err == nil {
		err = extractOthers(upper, bufio.NewReader(io.NewSectionReader(f, r.Others.Offset, min(r.Others.Size, maxOthersBytes))))
		err = errors.Join(err, upper.Close())
	}
	if err != nil {
		return fmt.Errorf("give the image's files of other owners to root: %w", err)
	}
	return nil
}

// extractOthers unpacks a tar stream. The stream may be hostile: an os.Root keeps its names and
// links inside, and a directory's entry follows the entries in it.
func extractOthers(dir *os.Root, stream io.Reader) error {
	tr := tar.NewReader(stream)
	for range maxOthers {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(hdr.Name, "/")
		if err := dir.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := extractOther(dir, name, hdr, tr); err != nil {
			return err
		}
	}
	return fmt.Errorf("there are more than %d", maxOthers)
}

func extractOther(dir *os.Root, name string, hdr *tar.Header, content io.Reader) error {
	switch hdr.Typeflag {
	case tar.TypeReg:
		f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	case tar.TypeDir:
		if err := dir.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeSymlink:
		return dir.Symlink(hdr.Linkname, name)
	case tar.TypeLink:
		return dir.Link(hdr.Linkname, name)
	case tar.TypeFifo:
		return makeFifo(dir, name, hdr)
	default:
		return nil
	}
	if err := dir.Chmod(name, hdr.FileInfo().Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)); err != nil {
		return err
	}
	return dir.Chtimes(name, hdr.ModTime, hdr.ModTime)
}

// makeFifo makes a FIFO in its directory, because an os.Root makes none.
func makeFifo(dir *os.Root, name string, hdr *tar.Header) error {
	parent, err := dir.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }() // it was only read
	return unix.Mkfifoat(int(parent.Fd()), path.Base(name), uint32(hdr.Mode&0o777))
}
