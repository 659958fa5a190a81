package linkonce

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// temporaries lists the temporary files in the path's directory.
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
	testenv.UsesMachine()
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
		"unreadable":   func(path string, _ *disk) error { return os.Mkdir(path, 0o700) },
		"no record":    func(path string, _ *disk) error { return os.WriteFile(path, nil, 0o600) },
		"no directory": func(path string, _ *disk) error { return os.Remove(filepath.Dir(path)) },
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
				const limit = 10 * time.Second
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				standing, err := settle(ctx, d, []byte("mine"), whole)
				if waited := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || waited != limit {
					t.Errorf("%q, %v after %v", standing, err, waited)
				}
			})
			if left := temporaries(t, path); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
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
