package cacheadmin_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/cacheadmin"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/spool"
)

// neighbour makes the shared directory of a bridge that has begun.
func neighbour(t *testing.T, dir, name, bridge string) string {
	t.Helper()
	own := filepath.Join(dir, name)
	for _, d := range spool.Layout(own).Directories() {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := lease.Acquire(t.Context(), spool.Layout(own).BridgeDir(), lease.Holder{Bridge: bridge}, nil, nil); err != nil {
		t.Fatal(err)
	}
	return own
}

const bundle = "-0x0123456789abcdef0123456789abcdef"

// A worker that is stopped may have runs that go on, so its directory keeps its pins. A worker that is gone
// for good pins nothing.
func TestPinsOfAWorkerStayWhileItHasADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own := neighbour(t, dir, "own", "0a0a0a")
	stopped := neighbour(t, dir, "stopped", "b1b2b3")
	book, err := ledger.Open(t.Context(), filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = book.Close() })
	now := time.Now()
	clock := func() time.Time { return now }
	judge := cacheadmin.Judge{Ledger: &book.Reader, Now: clock, Neighbours: &cacheadmin.Neighbours{Dir: dir, Own: own, Now: clock}}
	holders := []cache.Holder{"row-b1b2b3" + bundle, "row-c1c2c3" + bundle, "user-ann", "row-" + cache.Holder(book.ID) + bundle}
	over := func() map[cache.Holder]bool {
		t.Helper()
		got, err := judge.Over(context.Background(), holders)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := over(); len(got) > 0 {
		t.Errorf("over at first sight: %v", got)
	}
	if _, err := judge.Over(t.Context(), nil); err != nil { // for another cache, which has no pins
		t.Fatal(err)
	}
	now = now.Add(11 * time.Minute)
	if got := over(); len(got) != 1 || !got["row-c1c2c3"+bundle] {
		t.Errorf("over after ten minutes: %v, want the one without a directory", got)
	}
	if err := os.RemoveAll(stopped); err != nil {
		t.Fatal(err)
	}
	if got := over(); got["row-b1b2b3"+bundle] {
		t.Errorf("over as soon as its directory is not seen: %v", got)
	}
	now = now.Add(11 * time.Minute)
	if got := over(); !got["row-b1b2b3"+bundle] || len(got) != 2 {
		t.Errorf("over: %v", got)
	}
}

func TestOnlyWorkersThatAreLongSilentAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own := neighbour(t, dir, "own", "0a0a0a")
	silent, quiet, running := neighbour(t, dir, "silent", "b1b2b3"), neighbour(t, dir, "quiet", "b4b5b6"), neighbour(t, dir, "running", "c1c2c3")
	attempt := filepath.Join(running, "spool", bundle[1:], "1-c1c2c3")
	if err := os.MkdirAll(attempt, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(attempt, "status.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	age := func(root string, by time.Duration, but string) {
		t.Helper()
		then := time.Now().Add(-by)
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Base(path) == but {
				return err
			}
			return os.Chtimes(path, then, then)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	age(silent, 8*24*time.Hour, "")
	age(quiet, 6*24*time.Hour, "")
	age(running, 8*24*time.Hour, "status.json") // its worker is gone, and a command goes on
	age(own, 8*24*time.Hour, "")
	n := cacheadmin.Neighbours{Dir: dir, Own: own, Now: time.Now}
	removed, err := n.RemoveEnded(t.Context(), 7*24*time.Hour)
	if err != nil || len(removed) != 1 || removed[0] != silent {
		t.Errorf("removed %v, %v", removed, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("left: %v, %v", left, err)
	}
}
