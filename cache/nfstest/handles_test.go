package nfstest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestOpenFileThatAnotherClientRemovesIsStale(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	s.write(s.a, "x", "one")
	defer unshared()()
	f, err := os.OpenFile(filepath.Join(s.b, "x"), os.O_RDWR, 0)
	must(t, err)
	must(t, os.Remove(filepath.Join(s.a, "x")))
	_, err = f.Read(make([]byte, 3))
	is(t, err, syscall.ESTALE)
	_, err = f.Stat()
	is(t, err, syscall.ESTALE)
	_, err = f.WriteString("two")
	is(t, errors.Join(err, f.Close()), syscall.ESTALE)
	s.struck(StaleHandle)
	s.exists(s.b, "x", false)
}

func TestStaleNameOpensWhatItLedTo(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	names := []string{"renamed", "gone", "replaced"}
	for _, name := range names {
		s.write(s.a, name, name)
	}
	for _, name := range names {
		s.exists(s.b, name, true)
	}
	must(t, os.Rename(filepath.Join(s.a, "renamed"), filepath.Join(s.a, "elsewhere")))
	must(t, os.Remove(filepath.Join(s.a, "gone")))
	s.write(s.a, "new", "new")
	must(t, os.Rename(filepath.Join(s.a, "new"), filepath.Join(s.a, "replaced")))

	s.reads(s.b, "renamed", "renamed")
	if _, err := os.Open(filepath.Join(s.b, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	s.reads(s.b, "replaced", "new") // its old file is gone, so it is looked up again
	s.struck(StaleName)
}

func TestStaleHandleReachesTheProgram(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	s.write(s.a, "x", "one")
	s.exists(s.b, "x", true)
	must(t, os.Remove(filepath.Join(s.a, "x")))
	s.Inject(Fault{Kind: StaleHandle, Rate: 1})
	for range 2 {
		_, err := os.Open(filepath.Join(s.b, "x"))
		is(t, err, syscall.ESTALE)
	}
	s.struck(StaleHandle)
	s.write(s.b, "own", "") // makes the client revalidate the directory
	s.exists(s.b, "x", false)
}

func TestDirectoryThatIsGoneIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	must(t, os.Mkdir(filepath.Join(s.a, "d"), 0o755))
	s.write(s.a, "d/x", "old")
	s.reads(s.b, "d/x", "old")
	s.lists(filepath.Join(s.b, "d"), "x")
	inside, err := os.Open(filepath.Join(s.b, "d"))
	must(t, err)
	defer inside.Close()
	must(t, os.RemoveAll(filepath.Join(s.a, "d")))
	if err := os.WriteFile(filepath.Join(s.b, "d/y"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("create in a directory that is gone: %v", err)
	}
	fd, err := unix.Openat(int(inside.Fd()), "y", unix.O_CREAT|unix.O_WRONLY, 0o600)
	is(t, err, syscall.ESTALE)
	_ = unix.Close(fd)
	must(t, os.Mkdir(filepath.Join(s.a, "d"), 0o755))
	s.write(s.a, "d/z", "new")
	s.write(s.b, "own", "")
	s.reads(s.b, "d/z", "new")
}

// sillyNames returns the names of silly renames in the server's directory.
func (s *site) sillyNames(dir string) (names []string) {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.disk, dir))
	must(s.t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".nfs") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names
}

// noSillyNames waits until there are none: they vanish after a close has returned.
func (s *site) noSillyNames(dir string) {
	s.t.Helper()
	testenv.Await(s.t, "no file is left that was removed while it was open", func() bool { return len(s.sillyNames(dir)) == 0 })
}

func TestOpenFileThatIsRemovedHereKeepsASillyName(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	must(t, os.Mkdir(filepath.Join(s.a, "d"), 0o755))
	s.write(s.a, "d/x", "one")
	defer unshared()()
	f, err := os.Open(filepath.Join(s.a, "d/x"))
	must(t, err)
	must(t, os.Remove(filepath.Join(s.a, "d/x")))
	s.exists(s.a, "d/x", false)
	s.exists(s.b, "d/x", false)
	silly := s.sillyNames("d")
	if len(silly) != 1 {
		t.Fatalf("silly names %q", silly)
	}
	is(t, syscall.Rmdir(filepath.Join(s.a, "d")), syscall.ENOTEMPTY)
	is(t, syscall.Unlink(filepath.Join(s.a, silly[0])), syscall.EBUSY)
	got := make([]byte, 3)
	if _, err := f.Read(got); err != nil || string(got) != "one" {
		t.Errorf("reads %q, %v", got, err)
	}
	must(t, f.Close())
	s.noSillyNames("d")
	must(t, syscall.Rmdir(filepath.Join(s.a, "d")))
	s.struck(SillyRename)
}

func TestOpenFileThatIsReplacedHereKeepsASillyName(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	s.write(s.a, "x", "old")
	s.write(s.a, "new", "new")
	defer unshared()()
	f, err := os.Open(filepath.Join(s.a, "x"))
	must(t, err)
	must(t, os.Rename(filepath.Join(s.a, "new"), filepath.Join(s.a, "x")))
	s.reads(s.b, "x", "new")
	got := make([]byte, 3)
	if _, err := f.Read(got); err != nil || string(got) != "old" {
		t.Errorf("reads %q, %v", got, err)
	}
	if silly := s.sillyNames(""); len(silly) != 1 {
		t.Errorf("silly names %q", silly)
	}
	must(t, f.Close())
	s.noSillyNames("")
}

func TestTimesAreTheServers(t *testing.T) {
	t.Parallel()
	const skew = 90 * time.Second
	s := newSite(t, Options{Skew: skew})
	name := filepath.Join(s.a, "x")
	near := func() {
		t.Helper()
		info, err := os.Stat(filepath.Join(s.b, "x"))
		must(t, err)
		if off := time.Since(info.ModTime()) + skew; off.Abs() > skew/3 {
			t.Errorf("the server's time is off by %s", off)
		}
	}
	s.write(s.a, "x", "one")
	near()
	given := time.Unix(1_000_000_000, 123_456_789)
	must(t, os.Chtimes(name, given, given))
	if info, err := os.Stat(filepath.Join(s.b, "x")); err != nil || !info.ModTime().Equal(given) {
		t.Errorf("%s, %v; want %s", info.ModTime(), err, given)
	}
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, name, now, 0))
	near()
}
