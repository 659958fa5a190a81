package nfstest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// site is a server with two clients, a and b.
type site struct {
	*Server

	t          *testing.T
	disk, a, b string
}

// long outlasts any test.
const long = time.Hour

var must = testenv.Must

func newSite(t *testing.T, o Options) *site {
	t.Helper()
	s := &site{t: t, disk: t.TempDir(), a: t.TempDir(), b: t.TempDir()}
	s.Server = Serve(t, s.disk, o)
	s.Mount(s.a)
	s.Mount(s.b)
	return s
}

// forgetful is a site whose clients trust their caches for a long time.
func forgetful(t *testing.T) *site {
	t.Helper()
	return newSite(t, Options{Seed: 1, AcregMin: long, AcregMax: long, AcdirMin: long, AcdirMax: long})
}

// struck fails unless a kind was counted.
func (s *site) struck(kind Kind) {
	s.t.Helper()
	if n := s.Counts()[kind]; n == 0 {
		s.t.Errorf("%s: never", kind)
	}
}

func (s *site) write(dir, name, text string) {
	s.t.Helper()
	must(s.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

// reads fails unless a file has this text.
func (s *site) reads(dir, name, want string) {
	s.t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || string(got) != want {
		s.t.Errorf("%s reads %q, %v; want %q", name, got, err, want)
	}
}

// exists fails unless a look-up finds a name, or finds none.
func (s *site) exists(dir, name string, want bool) {
	s.t.Helper()
	_, err := os.Lstat(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Error(err)
	}
	if got := err == nil; got != want {
		s.t.Errorf("%s is there: %v, want %v", name, got, want)
	}
}

func (s *site) size(dir, name string) int64 {
	s.t.Helper()
	info, err := os.Stat(filepath.Join(dir, name))
	must(s.t, err)
	return info.Size()
}

func (s *site) lists(dir string, want ...string) {
	s.t.Helper()
	entries, err := os.ReadDir(dir)
	must(s.t, err)
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("listing %q, want %q", got, want)
	}
}

// is fails unless err is this error number.
func is(t *testing.T, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// unshared keeps other tests from starting programs until the returned function is called. Such
// programs hold and close the files that are open here, and only one close(2) reports an error of
// writing.
func unshared() (end func()) {
	syscall.ForkLock.RLock()
	return syscall.ForkLock.RUnlock
}

func TestWithoutCachesTwoClientsSeeOneDisk(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	s.write(s.a, "x", "one")
	s.reads(s.b, "x", "one")
	must(t, os.Mkdir(filepath.Join(s.b, "d"), 0o750))
	s.lists(s.a, "d", "x")
	must(t, os.Rename(filepath.Join(s.a, "x"), filepath.Join(s.a, "d/y")))
	s.exists(s.b, "x", false)
	must(t, os.Symlink("y", filepath.Join(s.b, "d/l")))
	s.reads(s.a, "d/l", "one")
	must(t, os.Link(filepath.Join(s.a, "d/y"), filepath.Join(s.a, "d/z")))
	var st syscall.Stat_t
	must(t, syscall.Stat(filepath.Join(s.b, "d/y"), &st))
	if st.Nlink != 2 {
		t.Errorf("%d links", st.Nlink)
	}
	must(t, os.RemoveAll(filepath.Join(s.b, "d")))
	s.lists(s.a)
	s.lists(s.disk)
	is(t, unix.Renameat2(unix.AT_FDCWD, s.a+"/x", unix.AT_FDCWD, s.a+"/y", unix.RENAME_NOREPLACE), syscall.ENOENT)
	s.write(s.a, "x", "")
	is(t, unix.Renameat2(unix.AT_FDCWD, s.a+"/x", unix.AT_FDCWD, s.a+"/y", unix.RENAME_NOREPLACE), syscall.EINVAL)
	var there, here syscall.Statfs_t
	must(t, errors.Join(syscall.Statfs(s.disk, &there), syscall.Statfs(s.b, &here)))
	if here.Blocks != there.Blocks || here.Bsize != there.Bsize {
		t.Errorf("statfs of the mount says %+v, of the disk %+v", here, there)
	}
	for kind, n := range s.Counts() {
		if kind != StaleHandle {
			t.Errorf("%s: %d", kind, n)
		}
	}
}

func TestAttributesAreStaleUntilTheirTimeIsUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{AcregMin: 100 * time.Millisecond, AcregMax: 200 * time.Millisecond, AcdirMin: long, AcdirMax: long})
	s.write(s.a, "x", "one")
	if n := s.size(s.b, "x"); n != 3 {
		t.Fatalf("size %d", n)
	}
	s.write(s.a, "x", "three")
	testenv.Await(t, "the other client sees five bytes", func() bool { return s.size(s.b, "x") == 5 })
	s.struck(StaleAttributes)
}
