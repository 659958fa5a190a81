package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// linkTree copies a tree. Files become hard links if the file system allows that, else copies with the
// same permissions and times. On another file system it leaves out all entries except files, directories
// and symbolic links.
func linkTree(from, to string) error {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return linkEntry(path, filepath.Join(to, below), d)
	})
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

func linkEntry(from, to string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	switch {
	case d.IsDir():
		mode := info.Mode().Perm() | 0o700
		return errors.Join(os.Mkdir(to, mode), os.Chmod(to, mode))
	case d.Type() == fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	err = os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrNotExist) || !info.Mode().IsRegular() {
		if errors.Is(err, syscall.EXDEV) {
			return nil
		}
		return err
	}
	// The file system differs or has no hard links, or the file belongs to another user.
	return copyFile(from, to, info)
}

func copyFile(from, to string, info fs.FileInfo) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}
