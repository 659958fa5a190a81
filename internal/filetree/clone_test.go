package filetree_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// cloned returns the path of a copy of a directory.
func cloned(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	t.Cleanup(func() { testenv.Must(t, filetree.Remove(to)) }) // a path of the test's own removal may be too long
	testenv.Must(t, filetree.Clone(t.Context(), dir, to, nil))
	if _, err := os.Lstat(to + ".names"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it leaves names behind: %v", err)
	}
	return to
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	testenv.Must(t, err)
	return string(data)
}

// A process of the original may still write, and the copy's processes write too.
func TestCloneAndOriginalChangeNothingInEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	testenv.Must(t, os.WriteFile(file, []byte("before"), 0o600))
	open, err := os.OpenFile(file, os.O_WRONLY, 0)
	testenv.Must(t, err)
	defer func() { testenv.Must(t, open.Close()) }()
	to := cloned(t, dir)
	_, err = open.WriteString("AFTER!") // in place
	testenv.Must(t, err)
	if got := text(t, filepath.Join(to, "f")); got != "before" {
		t.Errorf("the copy holds %q", got)
	}
	testenv.Must(t, os.WriteFile(filepath.Join(to, "f"), []byte("mine"), 0o600))
	if got := text(t, file); got != "AFTER!" {
		t.Errorf("the original holds %q", got)
	}
}

func TestCloneOfHostileDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	testenv.Must(t, errors.Join(
		os.WriteFile(in("f"), []byte("text"), 0o600),
		os.Symlink("/etc/passwd", in("out")), os.Symlink("loop", in("loop")), os.Symlink("..", in("up")),
		unix.Mkfifo(in("pipe"), 0o600),
		unix.Mknod(in("socket"), unix.S_IFSOCK|0o600, 0),
		os.MkdirAll(in("closed/inner"), 0o700), os.WriteFile(in("closed/inner/f"), []byte("kept"), 0o600),
		os.Chmod(in("closed/inner/f"), 0), os.Chmod(in("closed/inner"), 0o500), os.Chmod(in("closed"), 0),
		os.WriteFile(in("-rf *\n"), nil, 0o444),
		os.WriteFile(in("setuid"), nil, 0o700), os.Chmod(in("setuid"), fs.ModeSetuid|0o755),
	))
	if os.Geteuid() == 0 {
		testenv.Must(t, unix.Mknod(in("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	}
	t.Cleanup(func() { testenv.Must(t, filetree.Remove(dir)) })
	to := cloned(t, dir)
	for _, name := range []string{"pipe", "socket", "device"} {
		if _, err := os.Lstat(filepath.Join(to, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"out": "/etc/passwd", "loop": "loop", "up": ".."} {
		if target, err := os.Readlink(filepath.Join(to, name)); err != nil || target != want {
			t.Errorf("%s leads to %q, %v", name, target, err)
		}
	}
	if got := text(t, filepath.Join(to, "closed/inner/f")); got != "kept" {
		t.Errorf("a closed file holds %q", got)
	}
	for name, want := range map[string]fs.FileMode{"-rf *\n": 0o444, "setuid": 0o755} {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode() != want {
			t.Errorf("%q: %v, %v", name, info, err)
		}
	}
}

// One file with many names must not fill the disk.
func TestClonedNamesOfOneFileAreOneFile(t *testing.T) {
	t.Parallel()
	dir := makeDeep(t, 100) // the names below are longer than a path may be
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("shared"), 0o600))
	testenv.Must(t, os.Mkdir(filepath.Join(dir, "names"), 0o700))
	for n := range 1000 {
		testenv.Must(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "names", fmt.Sprint(n))))
	}
	to := cloned(t, dir)
	var st unix.Stat_t
	testenv.Must(t, unix.Stat(filepath.Join(to, "a"), &st))
	if st.Nlink != 1001 {
		t.Errorf("the copy has %d names", st.Nlink)
	}
	original, err := os.Stat(filepath.Join(dir, "a"))
	testenv.Must(t, err)
	if copied, err := os.Stat(filepath.Join(to, "a")); err != nil || os.SameFile(original, copied) {
		t.Errorf("the copy is the original: %v", err)
	}
}

func TestClonedHolesTakeNoRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "sparse"))
	testenv.Must(t, err)
	const size = 1 << 42
	_, err = f.WriteAt([]byte("middle"), size/2)
	testenv.Must(t, errors.Join(err, f.Truncate(size), f.Close()))
	to := cloned(t, dir)
	var st unix.Stat_t
	testenv.Must(t, unix.Stat(filepath.Join(to, "sparse"), &st))
	if st.Size != size || st.Blocks > 1000 {
		t.Errorf("%d bytes in %d blocks", st.Size, st.Blocks)
	}
	copied, err := os.Open(filepath.Join(to, "sparse"))
	testenv.Must(t, err)
	defer func() { _ = copied.Close() }() // only read
	middle := make([]byte, 6)
	if _, err := copied.ReadAt(middle, size/2); err != nil || string(middle) != "middle" {
		t.Errorf("%q, %v", middle, err)
	}
}

func TestManyFilesAreCloned(t *testing.T) {
	t.Parallel()
	const many = 10_000
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	testenv.Must(t, err)
	defer func() { _ = root.Close() }() // its files are closed
	for n := range many {
		if n%1000 == 0 {
			testenv.Must(t, root.Mkdir(fmt.Sprint(n/1000), 0o700))
		}
		f, err := root.Create(fmt.Sprintf("%d/%d", n/1000, n))
		testenv.Must(t, err)
		testenv.Must(t, f.Close())
	}
	to := filepath.Join(t.TempDir(), "copy")
	copied := 0
	testenv.Must(t, filetree.Clone(t.Context(), dir, to, func(n int) { copied = n }))
	if kinds := count(t, to); copied != many || kinds[unix.S_IFREG] != many || kinds[unix.S_IFDIR] != many/1000+1 {
		t.Errorf("%d files are reported, and there are %v", copied, kinds)
	}
}

func TestCloneEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n := range 10 {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o600))
	}
	ctx, end := context.WithCancel(t.Context())
	err := filetree.Clone(ctx, dir, filepath.Join(t.TempDir(), "copy"), func(n int) {
		if n == 3 {
			end()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := filetree.Clone(t.Context(), filepath.Join(dir, "none"), filepath.Join(t.TempDir(), "copy"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}
