package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestRemovalsHappenLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), dir)
	must(t, err)
	failed := make(chan error, 1)
	s.Failed = func(err error) { failed <- err }
	for _, name := range []string{"a", "b"} {
		must(t, os.MkdirAll(filepath.Join(dir, "bundles", name, "d"), 0o700))
		s.RemoveLater(name)
	}
	s.RemoveLater("")
	if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("a sweep found %d of what is removed already, %v", n, err)
	}
	for left := 1; left > 0; time.Sleep(time.Millisecond) {
		entries, err := os.ReadDir(filepath.Join(dir, "bundles"))
		must(t, err)
		left = len(entries)
	}
	s.RemoveLater(strings.Repeat("x", 300)) // is no name
	if err := <-failed; err == nil {
		t.Error("the failure was not told")
	}
	must(t, s.Close())
	must(t, os.Mkdir(filepath.Join(dir, "bundles", "c"), 0o700))
	s.RemoveLater("c") // Sweep's, at the next start
	_, err = os.Stat(filepath.Join(dir, "bundles", "c"))
	must(t, err)
}
