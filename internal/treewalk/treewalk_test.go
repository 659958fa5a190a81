package treewalk_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// makeTree makes two files and two directories on each of so many levels, one of which has the next level.
func makeTree(t *testing.T, depth int) string {
	t.Helper()
	top := t.TempDir()
	dir, err := treewalk.OpenDir(unix.AT_FDCWD, top)
	testenv.Must(t, err)
	for range depth {
		for _, name := range []string{"a", "z"} {
			f, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_WRONLY, 0o600)
			testenv.Must(t, err)
			testenv.Must(t, unix.Close(f))
		}
		testenv.Must(t, unix.Mkdirat(dir, "empty", 0o700))
		testenv.Must(t, unix.Mkdirat(dir, "next", 0o700))
		next, err := treewalk.OpenDir(dir, "next")
		testenv.Must(t, err)
		testenv.Must(t, unix.Close(dir))
		dir = next
	}
	testenv.Must(t, unix.Close(dir))
	t.Cleanup(func() { removeTree(t, top) }) // os.RemoveAll needs a descriptor for each level
	return top
}

func removeTree(t *testing.T, top string) {
	t.Helper()
	testenv.Must(t, treewalk.Walk(unix.AT_FDCWD, top, treewalk.Visitor{
		Entry: func(dir int, name string) (bool, error) {
			err := unix.Unlinkat(dir, name, 0)
			if errors.Is(err, unix.EISDIR) {
				return true, nil
			}
			return false, err
		},
		Leave: func(dir int, name string) (bool, error) { return false, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) },
	}))
}

func isDir(dir int, name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, err
}

// A program can make a tree that is deeper than a path may be long and than a process may have open files.
func TestEveryEntryOfADeepTreeIsVisitedWithFewDescriptors(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{0, 1, treewalk.MaxOpen - 1, treewalk.MaxOpen, treewalk.MaxOpen + 1, 2000} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			t.Parallel()
			top := makeTree(t, depth)
			entries, left, open := map[string]int{}, 0, 0
			highest := 0
			testenv.Must(t, treewalk.Walk(unix.AT_FDCWD, top, treewalk.Visitor{
				Entry: func(dir int, name string) (bool, error) {
					entries[name]++
					return isDir(dir, name)
				},
				Open: func(dir int, name string) (int, error) {
					fd, err := treewalk.OpenDir(dir, name)
					open++
					highest = max(highest, fd)
					return fd, err
				},
				Leave: func(int, string) (bool, error) {
					left++
					return false, nil
				},
			}))
			for _, name := range []string{"a", "z", "empty", "next"} {
				if entries[name] != depth {
					t.Errorf("%q was visited %d times", name, entries[name])
				}
			}
			if left != 2*depth+1 || open != left {
				t.Errorf("%d directories were opened, and %d left", open, left)
			}
			const others = 500 // of the tests at the same time
			if highest > treewalk.MaxOpen+others {
				t.Errorf("descriptor %d", highest)
			}
		})
	}
}

// A directory that is moved during the walk must not lead it to other directories.
func TestMovedDirectoryLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	top, elsewhere := makeTree(t, 3*treewalk.MaxOpen), t.TempDir()
	testenv.Must(t, os.WriteFile(filepath.Join(elsewhere, "theirs"), nil, 0o600))
	next, visited := 0, []string{}
	err := treewalk.Walk(unix.AT_FDCWD, top, treewalk.Visitor{
		Entry: func(dir int, name string) (bool, error) {
			visited = append(visited, name)
			if name == "next" {
				next++
			}
			if next == 2*treewalk.MaxOpen { // its own directory, whose parents are closed
				next++
				testenv.Must(t, os.Rename(top+"/next/next", elsewhere+"/moved"))
			}
			return isDir(dir, name)
		},
	})
	if err == nil || err.Error() != `the directory "next" was moved during the walk` || slices.Contains(visited, "theirs") {
		t.Errorf("%v", err)
	}
	testenv.Must(t, os.Rename(elsewhere+"/moved", top+"/next/next"))
}

func TestFailureOfADirectoryMayBeIgnored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.Must(t, errors.Join(os.Mkdir(dir+"/a", 0o700), os.Symlink("/", dir+"/link"), os.WriteFile(dir+"/a/file", nil, 0o600)))
	var visited, failed []string
	v := treewalk.Visitor{Entry: func(_ int, name string) (bool, error) {
		visited = append(visited, name)
		return true, nil
	}}
	if err := treewalk.Walk(unix.AT_FDCWD, dir, v); err == nil {
		t.Error("a link and a file were entered")
	}
	visited = nil
	v.Failed = func(_ int, name string, err error) error {
		if treewalk.IsGone(err) {
			failed = append(failed, name)
			return nil
		}
		return err
	}
	testenv.Must(t, treewalk.Walk(unix.AT_FDCWD, dir, v))
	slices.Sort(visited)
	slices.Sort(failed)
	if !slices.Equal(visited, []string{"a", "file", "link"}) || !slices.Equal(failed, []string{"file", "link"}) {
		t.Errorf("visited %q, failed %q", visited, failed)
	}
}

// A program may put a pipe in place of a directory, and opening that for reading would wait for a writer.
func TestPipeInPlaceOfADirectoryIsRefused(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	testenv.Must(t, unix.Mkfifo(pipe, 0o600))
	if _, err := treewalk.OpenDir(unix.AT_FDCWD, pipe); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("opened: %v", err)
	}
}
