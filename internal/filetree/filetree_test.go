package filetree_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// It runs as an ordinary user: root may read everything.
func TestClosedDirectoriesAreRemovedAndLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	dir := filepath.Join(t.TempDir(), "tree")
	inner := filepath.Join(dir, "a", "b")
	if err := errors.Join(
		os.WriteFile(kept, nil, 0o400),
		os.MkdirAll(inner, 0o700),
		os.WriteFile(filepath.Join(inner, "f"), nil, 0o400),
		os.Symlink(outside, filepath.Join(dir, "a", "link")),
		os.Chmod(inner, 0o500),
		os.Chmod(filepath.Join(dir, "a"), 0),
		os.Chmod(dir, 0),
	); err != nil {
		t.Fatal(err)
	}
	if err := filetree.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is there still: %v", err)
	}
	if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("what a link led to: %v, %v", info, err)
	}
	if err := filetree.Remove(dir); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
}
