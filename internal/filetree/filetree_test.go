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
	testenv.UsesMachine()
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

// It runs as an ordinary user: root may read everything.
func TestClosedTreeIsOpenedToItsOwnerAlone(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	dir := t.TempDir()
	inner := filepath.Join(dir, "results")
	file := filepath.Join(inner, "model")
	if err := errors.Join(
		os.Mkdir(inner, 0o700),
		os.WriteFile(file, []byte("weights"), 0o600),
		os.Chmod(file, 0o040),
		os.Chmod(inner, 0o450),
		os.Chmod(dir, 0o500),
	); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	filetree.OpenUp(root)
	for name, want := range map[string]fs.FileMode{dir: 0o700, inner: 0o750, file: 0o440} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %v", name, info, err, want)
		}
	}
	if err := os.Chmod(inner, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := filetree.RemoveIn(root, "results"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(inner); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after RemoveIn: %v", err)
	}
}
