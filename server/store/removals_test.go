package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
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
	var left []os.DirEntry
	testenv.Await(t, "the contents are removed", func() bool {
		var err error
		left, err = os.ReadDir(filepath.Join(dir, "bundles"))
		must(t, err)
		return len(left) == 0
	}, &left)
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
