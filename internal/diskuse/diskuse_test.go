package diskuse_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/diskuse"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func write(t *testing.T, path string, size int64) {
	t.Helper()
	testenv.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testenv.Must(t, os.WriteFile(path, make([]byte, size), 0o600))
}

func measured(t *testing.T, trees ...diskuse.Tree) int64 {
	t.Helper()
	bytes, err := diskuse.Measure(t.Context(), trees...)
	testenv.Must(t, err)
	return bytes
}

func TestEverythingInADirectoryCounts(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, test := range map[string]struct {
		make func(dir string)
		want int64 // MiB
	}{
		"files":          {func(dir string) { write(t, dir+"/a/b/x", 2*mib); write(t, dir+"/y", mib) }, 3},
		"holes":          {func(dir string) { write(t, dir+"/x", 0); testenv.Must(t, os.Truncate(dir+"/x", 64*mib)) }, 64},
		"two names":      {func(dir string) { write(t, dir+"/x", 2*mib); testenv.Must(t, os.Link(dir+"/x", dir+"/y")) }, 2},
		"a link outside": {func(dir string) { testenv.Must(t, os.Symlink("/usr", dir+"/usr")) }, 0},
		"room beyond the end": {func(dir string) {
			f, err := os.Create(dir + "/x")
			testenv.Must(t, err)
			err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 8*mib)
			if errors.Is(err, unix.EOPNOTSUPP) {
				err = f.Truncate(8 * mib)
			}
			testenv.Must(t, err)
			testenv.Must(t, f.Close())
		}, 8},
		"a pipe":           {func(dir string) { testenv.Must(t, unix.Mkfifo(dir+"/x", 0o600)) }, 0},
		"many entries":     {func(dir string) { many(t, dir, 3000) }, -1},
		"a directory deep": {func(dir string) { write(t, dir+strings.Repeat("/d", 1500)+"/x", mib) }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			test.make(dir)
			got := measured(t, diskuse.Tree{Dir: dir})
			const slack = mib / 2 // the blocks of directories
			switch {
			case test.want >= 0 && (got < test.want*mib || got > test.want*mib+slack):
				t.Errorf("%d bytes, want %d MiB", got, test.want)
			case test.want < 0 && got < mib:
				t.Errorf("%d bytes, want a MiB or more", got)
			}
		})
	}
}

func TestSumsDoNotOverflow(t *testing.T) {
	t.Parallel()
	for _, test := range [][3]int64{{1, 2, 3}, {1 << 62, 1 << 62, math.MaxInt64}, {math.MaxInt64, 1, math.MaxInt64}, {math.MaxInt64 - 1, 1, math.MaxInt64}} {
		if got := diskuse.Add(test[0], test[1]); got != test[2] {
			t.Errorf("%d and %d are %d", test[0], test[1], got)
		}
	}
}

// many makes files of 512 bytes.
func many(t *testing.T, dir string, n int) {
	t.Helper()
	for i := range n {
		write(t, filepath.Join(dir, strings.Repeat("x", 1+i%200)+string(rune('a'+i/200))), 512)
	}
}

// changed returns the time of a file's last change.
func changed(t *testing.T, path string) time.Time {
	t.Helper()
	var st unix.Stat_t
	testenv.Must(t, unix.Stat(path, &st))
	return time.Unix(st.Ctim.Unix())
}

func TestFilesThatHaveNotChangedSinceAreLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/old", 1<<20)
	write(t, dir+"/changed", 1<<20)
	since := changed(t, dir+"/old")
	testenv.Await(t, "the clock of the file system has gone on", func() bool {
		testenv.Must(t, os.Chtimes(dir+"/changed", time.Unix(0, 0), time.Unix(0, 0)))
		return changed(t, dir+"/changed").After(since)
	})
	if got := measured(t, diskuse.Tree{Dir: dir, Since: since}); got != 1<<20 {
		t.Errorf("%d bytes", got)
	}
}

// Root reads every directory.
func TestClosedDirectoriesAreOpenedOrSaid(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	for _, mode := range []os.FileMode{0, 0o400, 0o100} {
		dir := t.TempDir()
		write(t, dir+"/a/b/x", 1<<20)
		testenv.Must(t, os.Chmod(dir+"/a/b", mode))
		testenv.Must(t, os.Chmod(dir+"/a", mode))
		if _, err := diskuse.Measure(t.Context(), diskuse.Tree{Dir: dir}); !errors.Is(err, diskuse.ErrClosed) {
			t.Errorf("%v: %v", mode, err)
		}
		if got := measured(t, diskuse.Tree{Dir: dir, Open: true}); got < 1<<20 {
			t.Errorf("%v: %d bytes", mode, got)
		}
	}
}
