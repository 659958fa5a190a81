package filetree_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestMain(m *testing.M) {
	if code, ran := subids.Main(os.Args); ran {
		os.Exit(code)
	}
	if len(os.Args) == 3 && os.Args[1] == removeTree {
		if err := filetree.Remove(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// removeTree is an argument with which this program removes a directory.
const removeTree = "remove-tree"

// A command can make directories so deeply nested that no path reaches them and no process could have all
// of them open.
func TestDeepTreesAreOpenedAndRemovedWithFewDescriptors(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	const depth, descriptors = 2500, "200"
	dir := filepath.Join(t.TempDir(), "deep")
	testenv.Must(t, os.Mkdir(dir, 0o700))
	root, err := os.OpenRoot(dir)
	testenv.Must(t, err)
	defer root.Close()
	at, err := unix.Open(dir, unix.O_PATH, 0)
	testenv.Must(t, err)
	for i := range depth {
		testenv.Must(t, unix.Mkdirat(at, "d", 0o700))
		below, err := unix.Openat(at, "d", unix.O_PATH, 0)
		testenv.Must(t, err)
		if i%2 == 1 {
			testenv.Must(t, os.Chmod(fmt.Sprintf("/proc/self/fd/%d", at), 0))
		}
		testenv.Must(t, unix.Close(at))
		at = below
	}
	testenv.Must(t, unix.Close(at))
	closed := func() (n int) {
		testenv.Must(t, filetree.Each(t.Context(), dir, func(st *unix.Stat_t) error {
			if st.Mode&0o700 != 0o700 {
				n++
			}
			return nil
		}))
		return n
	}
	if closed() != 1 {
		t.Fatal("the tree is open, so this test shows nothing")
	}
	filetree.OpenUp(root)
	if n := closed(); n != 0 {
		t.Errorf("%d directories are closed", n)
	}
	testenv.Must(t, os.Chmod(dir, 0o500))
	remove := exec.Command("sh", "-c", "ulimit -n "+descriptors+" && exec /proc/"+strconv.Itoa(os.Getpid())+"/exe "+removeTree+" "+dir)
	if output, err := remove.CombinedOutput(); err != nil {
		t.Errorf("%v: %.300s", err, output)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is there still: %v", err)
		testenv.Must(t, filetree.Remove(dir)) // with more descriptors
	}
}

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

// It runs as an ordinary user, who leaves files as a killed container does.
func TestTreesOfSubordinateIDsAreOpenedAndRemoved(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	testenv.SubordinateIDs(t)
	dir := t.TempDir()
	for _, name := range []string{"whole", "part", "root", "opened"} {
		leaveForeign(t, filepath.Join(dir, name))
	}
	if err := exec.Command("rm", "-r", filepath.Join(dir, "whole")).Run(); err == nil {
		t.Fatal("the user can remove the tree, so this test shows nothing")
	}
	if err := filetree.Remove(filepath.Join(dir, "whole")); err != nil {
		t.Error(err)
	}
	if err := filetree.Remove(filepath.Join(dir, "root", "deep")); err != nil { // its own root is another id's
		t.Error(err)
	}
	root, err := os.OpenRoot(dir)
	testenv.Must(t, err)
	defer root.Close()
	if err := filetree.RemoveIn(root, "part"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"whole", "part", "root/deep"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there still: %v", name, err)
		}
	}
	filetree.OpenUp(root)
	if text, err := os.ReadFile(filepath.Join(dir, "opened/deep/file")); err != nil || string(text) != "x\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// leaveForeign makes a tree of which parts belong to the user's subordinate ids.
func leaveForeign(t *testing.T, dir string) {
	t.Helper()
	script := `mkdir -p $0/deep/er && echo x >$0/deep/file && echo x >$0/deep/er/file && chown -R 5:6 $0/deep && chmod 0700 $0/deep && chmod 0 $0/deep/er $0/deep/file`
	output, err := exec.Command("unshare", "--user", "--map-root-user", "--map-auto", "sh", "-c", script, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}
