package caches_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/admin/caches"
	"github.com/cl-slurm/cl-slurm/cache"
)

// A purger removes single files of a content, by their ages.
func TestContentThatLacksFilesHasVanished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(names ...string) {
		for _, name := range names {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("whole/a", "whole/b/c", "part/b", "file", "large/a")
	if err := os.MkdirAll(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	entry := func(name string, files int64) cache.Entry {
		return cache.Entry{Path: filepath.Join(dir, name), Files: files}
	}
	good := []cache.Entry{entry("whole", 2), entry("file", 1), entry("empty", 0), {Path: filepath.Join(dir, "gone"), Files: 1, Retired: true}}
	if n, one, err := caches.Vanished(t.Context(), good, 100); n != 0 || one != "" || err != nil {
		t.Errorf("a good cache: %d, %q, %v", n, one, err)
	}
	for name, files := range map[string]int64{"part": 2, "gone": 1, "absent-and-empty": 0} {
		n, one, err := caches.Vanished(t.Context(), append(good, entry(name, files)), 100)
		if n != 1 || filepath.Base(one) != name || err != nil {
			t.Errorf("%s: %d, %q, %v", name, n, one, err)
		}
	}
	if n, _, err := caches.Vanished(t.Context(), []cache.Entry{entry("large", 101)}, 100); n != 0 || err != nil {
		t.Errorf("a content with too many files to look at: %d, %v", n, err)
	}
}
