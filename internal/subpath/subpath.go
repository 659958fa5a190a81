// Package subpath compares paths by their text. It follows no symbolic link: a caller that
// must not leave a directory opens it as an os.Root instead.
package subpath

import "path/filepath"

// Within reports whether name is dir or lies below it. Both are absolute, or both are
// relative to the same directory.
func Within(name, dir string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}
