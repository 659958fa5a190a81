package testenv

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func TestKeptIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir, broken := t.TempDir(), errors.New("no network")
	if _, err := kept(dir, func(...string) error { return broken }, []string{"a", "b"}); !errors.Is(err, broken) {
		t.Errorf("a failure returns %v", err)
	}
	var calls atomic.Int32
	program := func(args ...string) error {
		calls.Add(1)
		if !slices.Equal(args[:2], []string{"a", "b"}) {
			t.Errorf("arguments %q", args)
		}
		return os.WriteFile(args[2], []byte("made"), 0o600)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			path, err := kept(dir, program, []string{"a", "b"})
			if content, errRead := os.ReadFile(path); err != nil || errRead != nil || string(content) != "made" {
				t.Errorf("%q, %v, %v", content, err, errRead)
			}
		})
	}
	all.Wait()
	if calls.Load() != 1 {
		t.Errorf("made %d times", calls.Load())
	}
	if _, err := kept(dir, func(...string) error { return broken }, []string{"ab"}); !errors.Is(err, broken) {
		t.Errorf("other arguments return %v", err)
	}
}
