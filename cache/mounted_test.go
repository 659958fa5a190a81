package cache_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
)

// If a process writes below a mount point while the disk is not mounted, no other process sees the
// files, and the disk hides them when it comes back.
func TestCacheWhoseDiskIsNotMountedIsAnErrorAndNothingIsMadeInItsPlace(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mounted", "cache")
	c := open(t, dir, cache.Options{})
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	for _, holder := range []cache.Holder{"", "row-1"} {
		w := cache.Want{Key: cache.Key{Kind: "bundle", ID: "a"}, Holder: holder}
		if _, err := c.Get(t.Context(), w, text("")); err == nil {
			t.Errorf("holder %q: the cache filled what is not there", holder)
		}
	}
	if err := c.Pin(t.Context(), cache.Key{Kind: "bundle", ID: "a"}, false, "user-ann"); err == nil {
		t.Error("a pin was made where there is nothing")
	}
	if _, err := c.Trim(t.Context(), cache.TrimOptions{}); err == nil {
		t.Error("the cache trimmed what is not there")
	}
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("something was made: %v", err)
	}
}

// CodaLab's own workers keep their files in the same directory.
func TestFilesOfOthersInTheDirectoryAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stock := []string{
		"dependencies-state.json", "images-state.json", "run-state.json", "worker.log",
		"dependencies/0x1/data", "images/image.sif", "runs/0x2/stdout", "sif/notes.txt", "bundle/aa/notes.txt", "bundle/other/x",
		".state.json.tmp-1", "runs/ab/.out.tmp-x", "runs/ab/.trash-mine", ".probe-me",
	}
	for _, name := range stock {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := open(t, dir, cache.Options{Settle: -1, Grace: 1})
	w := cache.Want{Key: cache.Key{Kind: "bundle", ID: "a"}}
	if _, err := c.Get(t.Context(), w, text("")); err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := c.Trim(t.Context(), cache.TrimOptions{All: true}); err != nil {
		t.Error(err)
	}
	for _, name := range stock {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != name {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if entries, err := c.Entries(t.Context()); err != nil || len(entries) != 0 {
		t.Errorf("left in the cache: %v, %v", entries, err)
	}
}
