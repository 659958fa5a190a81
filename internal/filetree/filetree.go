// Package filetree deals with trees of files that somebody else made as this
// user and may have closed to it: a command that is root in its container, or
// an overlay file system.
package filetree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// Remove removes a directory with all that is in it, also where a directory
// below has lost its owner's permissions. It follows no symbolic link. What is
// not there is removed already.
func Remove(dir string) error {
	failed := os.RemoveAll(dir)
	if failed == nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil { // it may be the directory itself that is closed
		_ = os.Chmod(dir, 0o700) //nolint:gosec // a directory needs x, and is about to go
		root, err = os.OpenRoot(dir)
	}
	if errors.Is(err, fs.ErrNotExist) { // somebody else removes it too
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

// OpenUp gives the owner all permissions on the root and the directories below
// it, and reading of the files. It follows no symbolic link. What it cannot do
// shows when the tree is used.
func OpenUp(root *os.Root) { openUp(root, ".") }

func openUp(root *os.Root, dir string) {
	_ = root.Chmod(dir, 0o700)
	d, err := root.Open(dir)
	if err != nil {
		return
	}
	entries, _ := d.ReadDir(-1)
	_ = d.Close()
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		info, err := e.Info()
		switch {
		case err != nil:
		case info.IsDir():
			openUp(root, name)
		case info.Mode().IsRegular() && info.Mode()&0o400 == 0:
			_ = root.Chmod(name, info.Mode().Perm()|0o400)
		}
	}
}
