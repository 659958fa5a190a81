package filetree_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// makeDeep makes a directory with a file and so many levels below it, each of which has a file, too. No path reaches
// the last ones.
func makeDeep(t *testing.T, depth int) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "deep")
	testenv.Must(t, os.Mkdir(dir, 0o700))
	t.Cleanup(func() { testenv.Must(t, filetree.Remove(dir)) }) // a path of the test's own removal is too long
	at, err := treewalk.OpenDir(unix.AT_FDCWD, dir)
	testenv.Must(t, err)
	for range depth {
		f, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
		testenv.Must(t, err)
		testenv.Must(t, unix.Close(f))
		testenv.Must(t, unix.Mkdirat(at, strings.Repeat("n", 100), 0o700))
		below, err := treewalk.OpenDir(at, strings.Repeat("n", 100))
		testenv.Must(t, err)
		testenv.Must(t, unix.Close(at))
		at = below
	}
	testenv.Must(t, unix.Close(at))
	return dir
}

// count counts the entries of a tree by their kinds.
func count(t *testing.T, dir string) (kinds map[uint32]int) {
	t.Helper()
	kinds = map[uint32]int{}
	testenv.Must(t, filetree.Each(t.Context(), dir, func(st *unix.Stat_t) error {
		kinds[st.Mode&unix.S_IFMT]++
		return nil
	}))
	return kinds
}

func TestTreeOfAnyDepthIsCopied(t *testing.T) {
	t.Parallel()
	const depth = 200
	dir := makeDeep(t, depth)
	for _, link := range []bool{false, true} {
		to := filepath.Join(t.TempDir(), "copy")
		t.Cleanup(func() { testenv.Must(t, filetree.Remove(to)) }) // as above
		testenv.Must(t, filetree.Copy(t.Context(), dir, to, link))
		if kinds := count(t, to); kinds[unix.S_IFDIR] != depth+1 || kinds[unix.S_IFREG] != depth {
			t.Errorf("the copy has %d directories and %d files", kinds[unix.S_IFDIR], kinds[unix.S_IFREG])
		}
		original, err := os.Stat(filepath.Join(dir, "file"))
		testenv.Must(t, err)
		copied, err := os.Stat(filepath.Join(to, "file"))
		if err != nil || os.SameFile(original, copied) != link {
			t.Errorf("link %t: %v", link, err)
		}
	}
}

func TestCopyHasContentsModesTimesAndLinks(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	changed := time.Unix(1e9, 123)
	testenv.Must(t, errors.Join(
		os.Mkdir(filepath.Join(dir, "d"), 0o500), // closed to writing
		os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o640),
		os.Symlink("../outside", filepath.Join(dir, "l")),
		unix.Mkfifo(filepath.Join(dir, "p"), 0o600),
		os.Chtimes(filepath.Join(dir, "f"), changed, changed),
	))
	testenv.Must(t, filetree.Copy(t.Context(), dir, to, false))
	if text, err := os.ReadFile(filepath.Join(to, "f")); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	for name, want := range map[string]fs.FileMode{"d": 0o700 | fs.ModeDir, "f": 0o640} {
		if info, err := os.Lstat(filepath.Join(to, name)); err != nil || info.Mode() != want || name == "f" && !info.ModTime().Equal(changed) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if target, err := os.Readlink(filepath.Join(to, "l")); target != "../outside" || err != nil {
		t.Errorf("link to %s, %v", target, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "p")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pipe: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := filetree.Copy(t.Context(), filepath.Join(dir, "f"), file, true); err != nil {
		t.Error(err)
	}
	if err := filetree.Copy(t.Context(), filepath.Join(dir, "none"), file, true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := filetree.Copy(ended, dir, filepath.Join(t.TempDir(), "x"), false); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
