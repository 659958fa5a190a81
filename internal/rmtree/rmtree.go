// Package rmtree removes trees of files that somebody else made as this user: a
// command in a container, or an overlay file system.
package rmtree

import (
	"fmt"
	"os"
	"path"
)

// Remove removes a directory with all that is in it, also where a directory
// below has lost its owner's permissions. It follows no symbolic link. What is
// not there is removed already.
func Remove(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil { // it may be the directory itself that is closed
		_ = os.Chmod(dir, 0o700) //nolint:gosec // a directory needs x, and is about to go
		root, err = os.OpenRoot(dir)
	}
	if err != nil {
		return fmt.Errorf("remove tree: %w", err)
	}
	openUp(root, ".")
	_ = root.Close() // only used to change modes
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove tree: %w", err)
	}
	return nil
}

// openUp gives the owner all permissions on a directory and those below it.
// What it cannot do shows in the removal.
func openUp(root *os.Root, dir string) {
	_ = root.Chmod(dir, 0o700)
	d, err := root.Open(dir)
	if err != nil {
		return
	}
	entries, _ := d.ReadDir(-1)
	_ = d.Close()
	for _, e := range entries {
		if e.IsDir() {
			openUp(root, path.Join(dir, e.Name()))
		}
	}
}
