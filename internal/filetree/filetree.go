// Package filetree removes and opens trees of files that a command wrote as this user and
// may have closed to it. A command that is root in its container does not notice missing
// permissions, and neither does an overlay file system.
package filetree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/subids"
)

// Remove removes a directory and its contents, even if a directory has lost its owner's
// permissions. It follows no symbolic link. It returns nil if the directory does not exist.
func Remove(dir string) error {
	failed := os.RemoveAll(dir)
	if failed == nil {
		return nil
	}
	openTop(dir)
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) { // another process removes it too
		return nil
	}
	if errors.Is(err, syscall.ENOTDIR) {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("remove tree: %w", err)
	}
	OpenUp(root)
	_ = root.Close() // only used to change modes
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove tree: %w", err)
	}
	return nil
}

// RemoveIn removes an entry of root and its contents, even if a directory has lost its
// owner's permissions.
func RemoveIn(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	at := filepath.Join(root.Name(), name)
	if info, err := root.Lstat(name); err == nil {
		if subids.IsForeign(info) {
			_ = subids.Reclaim(at) // a failure shows below
		}
		_ = OpenEntry(root, name, info) // as above
	}
	if dir, err := root.OpenRoot(name); err == nil {
		openUpOrReclaim(dir, at)
		_ = dir.Close() // only used to change modes
	}
	return root.RemoveAll(name)
}

// openTop gives the owner of a directory all permissions on it.
func openTop(dir string) {
	if info, err := os.Lstat(dir); err == nil && info.IsDir() && subids.IsForeign(info) {
		_ = subids.Reclaim(dir) // a failure shows below
	}
	_ = os.Chmod(dir, 0o700) // as above
}

// OpenUp gives the owner all permissions on the root and the directories below it, and read
// permission on files. It follows no symbolic link. It reports no failure, because the next
// use of the tree fails then. It does nothing if the owner may not search the root itself.
//
// If a killed container left files of the user's subordinate ids, OpenUp first makes the user their owner.
// Root's Name must be the path of the directory.
func OpenUp(root *os.Root) { openUpOrReclaim(root, root.Name()) }

func openUpOrReclaim(root *os.Root, at string) {
	if openUpAll(root) {
		if subids.Reclaim(at) == nil {
			openUpAll(root)
		}
	}
}

// openUpAll reports whether there are files of the user's subordinate ids.
func openUpAll(root *os.Root) (foreign bool) {
	if info, err := root.Lstat("."); err == nil {
		_ = OpenEntry(root, ".", info) // see OpenUp
		foreign = subids.IsForeign(info)
	}
	return openUp(root, ".") || foreign
}

func openUp(root *os.Root, dir string) (foreign bool) {
	d, err := root.Open(dir)
	if err != nil {
		return false
	}
	entries, _ := d.ReadDir(-1)
	_ = d.Close()
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil {
			continue
		}
		_ = OpenEntry(root, name, info)
		foreign = foreign || subids.IsForeign(info)
		if info.IsDir() {
			foreign = openUp(root, name) || foreign
		}
	}
	return foreign
}

// OpenEntry gives the owner all permissions on a directory of root, or reading of a file.
// info comes from Lstat.
func OpenEntry(root *os.Root, name string, info fs.FileInfo) error {
	mode := info.Mode()
	switch {
	case info.IsDir() && mode&0o700 != 0o700:
		return root.Chmod(name, mode.Perm()|0o700)
	case mode.IsRegular() && mode&0o400 == 0:
		return root.Chmod(name, mode.Perm()|0o400)
	}
	return nil
}
