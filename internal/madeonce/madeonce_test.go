package madeonce

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestItIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir, broken := filepath.Join(t.TempDir(), "new"), errors.New("no network")
	fails := func(string) (string, error) { return "", broken }
	if _, err := Path(dir, "a", fails); !errors.Is(err, broken) {
		t.Errorf("a failure returns %v", err)
	}
	var calls atomic.Int32
	build := func(tmp string) (string, error) {
		calls.Add(1)
		made := filepath.Join(tmp, "made")
		return made, errors.Join(os.WriteFile(made, []byte("content"), 0o600), os.WriteFile(filepath.Join(tmp, "left"), nil, 0o600))
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			path, err := Path(dir, "a", build)
			if content, errRead := os.ReadFile(path); err != nil || errRead != nil || string(content) != "content" {
				t.Errorf("%q, %v, %v", content, err, errRead)
			}
		})
	}
	all.Wait()
	if calls.Load() != 1 {
		t.Errorf("made %d times", calls.Load())
	}
	if _, err := Path(dir, "b", fails); !errors.Is(err, broken) {
		t.Errorf("another key returns %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%d entries besides the lock and what was made, %v", len(left)-2, err)
	}
}
