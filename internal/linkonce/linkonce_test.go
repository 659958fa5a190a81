package linkonce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// racer, when set in the environment of this test program, is the number of
// paths to settle in the directory that is given as its argument.
const racer = "CLTEST_LINKONCE_RACER"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(racer)); err == nil {
		if err := race(os.Args[1], n); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// unreliable is a disk that does, or does not do, what it is asked, and says
// whatever it likes about it.
func unreliable(path string) disk {
	d := onDisk(path, 0o600)
	maybe := func(percent int) bool { return rand.IntN(100) < percent }
	return disk{
		write: func(record []byte) (string, error) {
			name, err := d.write(record)
			if maybe(10) {
				return "", syscall.EIO
			}
			return name, err
		},
		link: func(temporary string) error {
			err := error(syscall.EIO)
			if maybe(60) {
				err = d.link(temporary)
			}
			if maybe(30) {
				err = []error{nil, fs.ErrExist, fs.ErrNotExist, syscall.ESTALE}[rand.IntN(4)]
			}
			return err
		},
		read: func() ([]byte, error) {
			switch rand.IntN(10) {
			case 0:
				return nil, fs.ErrNotExist
			case 1:
				return nil, syscall.ESTALE
			case 2:
				return nil, nil
			}
			return d.read()
		},
		flush: func() error {
			if maybe(10) {
				return syscall.EIO
			}
			return d.flush()
		},
		remove: func(temporary string) error {
			if maybe(10) {
				return syscall.EIO
			}
			return d.remove(temporary)
		},
		pause: func(context.Context) error { return nil },
	}
}

// race settles n paths below dir when its standard input ends, and prints its
// own record and the one that stands of each.
func race(dir string, n int) error {
	if err := testenv.Ready(); err != nil {
		return err
	}
	for i := range n {
		record := strconv.FormatUint(rand.Uint64(), 36)
		standing, err := settle(context.Background(), unreliable(filepath.Join(dir, strconv.Itoa(i))), []byte(record), whole)
		if err != nil {
			return err
		}
		fmt.Println(record, standing)
	}
	return nil
}

func TestSixtyFourProcessesWhoseRepliesAreLostSettleEachPathOnce(t *testing.T) {
	t.Parallel()
	const processes, paths = 64, 50
	dir := t.TempDir()
	printed := testenv.Race(t, processes, dir, func(int) []string { return []string{racer + "=" + strconv.Itoa(paths)} })
	owners, standing := make([][]string, paths), make([][]string, paths)
	winners := map[int]bool{}
	for i, lines := range printed {
		for n, line := range strings.Split(strings.TrimSuffix(lines, "\n"), "\n") {
			mine, stands, _ := strings.Cut(line, " ")
			standing[n] = append(standing[n], stands)
			if mine == stands {
				owners[n] = append(owners[n], mine)
				winners[i] = true
			}
		}
	}
	for n := range paths {
		answers := len(standing[n])
		slices.Sort(standing[n])
		if len(owners[n]) != 1 || answers != processes || len(slices.Compact(standing[n])) != 1 || standing[n][0] != owners[n][0] {
			t.Errorf("path %d: %d owners, %d answers", n, len(owners[n]), answers)
		}
	}
	t.Logf("%d of the processes own %d paths", len(winners), paths)
}

// temporaries lists what is beside the path.
func temporaries(t *testing.T, path string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestFirstRecordStandsForEver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "started")
	over, end := context.WithCancel(t.Context())
	end()
	for _, ctx := range []context.Context{t.Context(), over} { // it tries once in any case
		for _, record := range []string{"first", "second", "first"} {
			standing, err := Settle(ctx, path, []byte(record), 0o600, whole)
			if err != nil || standing != "first" {
				t.Errorf("%q, %v", standing, err)
			}
		}
	}
	if left := temporaries(t, path); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWhatIsNotLearntIsAnErrorWhenTheTimeIsUp(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string, d *disk) error{
		"unreadable": func(path string, _ *disk) error { return os.Mkdir(path, 0o700) },
		"no record":  func(path string, _ *disk) error { return os.WriteFile(path, nil, 0o600) },
		"no directory": func(path string, _ *disk) error {
			return os.Remove(filepath.Dir(path))
		},
		"never linked": func(_ string, d *disk) error {
			d.link = func(string) error { return nil }
			return nil
		},
		"never flushed": func(_ string, d *disk) error {
			d.flush = func() error { return syscall.EIO }
			return nil
		},
		"another one at each look": func(_ string, d *disk) error {
			n := 0
			d.read = func() ([]byte, error) {
				n++
				return []byte(strconv.Itoa(n)), nil
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "dir")
			path := filepath.Join(dir, "started")
			d := onDisk(path, 0o600)
			if err := errors.Join(os.Mkdir(dir, 0o700), spoil(path, &d)); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				const patience = 10 * time.Second
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				standing, err := settle(ctx, d, []byte("mine"), whole)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%q, %v", standing, err)
				}
				if waited := time.Since(began); waited != patience {
					t.Errorf("gave up after %v", waited)
				}
			})
			if left := temporaries(t, path); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestTemporaryThatIsSweptAwayIsWrittenAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "started")
	d := onDisk(path, 0o600)
	link, sweeps := d.link, 3
	d.link = func(temporary string) error {
		if sweeps--; sweeps >= 0 {
			if err := os.Remove(temporary); err != nil {
				t.Error(err)
			}
		}
		return link(temporary)
	}
	synctest.Test(t, func(t *testing.T) {
		standing, err := settle(t.Context(), d, []byte("mine"), whole)
		if err != nil || standing != "mine" {
			t.Errorf("%q, %v", standing, err)
		}
	})
	if left := temporaries(t, path); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFullDiskStillTellsWhatStands(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "started")
	if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := onDisk(path, 0o600)
	d.write = func([]byte) (string, error) { return "", syscall.ENOSPC }
	standing, err := settle(t.Context(), d, []byte("mine"), whole)
	if err != nil || standing != "theirs" {
		t.Errorf("%q, %v", standing, err)
	}
}
