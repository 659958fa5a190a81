package pins_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/pins"
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
	judge := pins.Judge{Ledger: &book.Reader, Now: clock, Neighbours: &pins.Neighbours{Dir: dir, Own: own, Now: clock}}
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
	undelivered, forgotten := neighbour(t, dir, "undelivered", "d1d2d3"), neighbour(t, dir, "forgotten", "e1e2e3")
	for _, own := range []string{undelivered, forgotten} {
		attempt := filepath.Join(own, "spool", bundle[1:], "1-d1d2d3")
		if err := errors.Join(os.MkdirAll(attempt, 0o700), os.WriteFile(filepath.Join(attempt, "exit.json"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	age(t, silent, 8, "")
	age(t, quiet, 6, "")
	age(t, running, 8, "status.json") // its worker is gone, and a command goes on
	age(t, undelivered, 8, "")
	age(t, forgotten, 31, "")
	age(t, own, 8, "")
	synctest.Test(t, func(t *testing.T) {
		n := pins.Neighbours{Dir: dir, Own: own, Now: time.Now}
		removed, err := n.RemoveEnded(t.Context(), 7*24*time.Hour)
		if err != nil || !slices.Equal(removed, []string{forgotten, silent}) {
			t.Errorf("removed %v, %v", removed, err)
		}
	})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 4 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// age makes all files of a directory but those of a name days old.
func age(t *testing.T, root string, days int, but string) {
	t.Helper()
	then := time.Now().AddDate(0, 0, -days)
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

func TestWorkerThatReturnsAfterALongTimeIsNotRemoved(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		host string
		// returns does what the worker does, a minute after the others began to watch it.
		returns func(t *testing.T, held *lease.Lease)
		locked  bool
		removed bool
	}{
		"and renews its lease": {host: "elsewhere", returns: func(t *testing.T, held *lease.Lease) {
			t.Helper()
			if err := held.Renew(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}},
		"and has locked its ledger":              {host: host, locked: true},
		"not, and its ledger is on this host":    {host: host, removed: true},
		"not, and its ledger is on another host": {host: "elsewhere", removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			own, other := neighbour(t, dir, "own", "0a0a0a"), filepath.Join(dir, "other")
			for _, d := range spool.Layout(other).Directories() {
				if err := os.MkdirAll(d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			where := filepath.Join(other, "ledger.db")
			if err := os.WriteFile(where, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			held, err := lease.Acquire(t.Context(), spool.Layout(other).BridgeDir(), lease.Holder{Bridge: "b1b2b3", Host: test.host, Ledger: where}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.locked {
				unlock, err := ledger.Lock(t.Context(), where)
				if err != nil {
					t.Fatal(err)
				}
				defer unlock()
			}
			age(t, other, 8, "")
			synctest.Test(t, func(t *testing.T) {
				if test.returns != nil {
					time.AfterFunc(time.Minute, func() { test.returns(t, held) })
				}
				n := pins.Neighbours{Dir: dir, Own: own, Now: time.Now}
				removed, err := n.RemoveEnded(t.Context(), 7*24*time.Hour)
				if err != nil || (len(removed) == 1) != test.removed {
					t.Errorf("removed %v, %v", removed, err)
				}
			})
			if _, err := os.Stat(other); (err != nil) != test.removed {
				t.Errorf("its directory: %v", err)
			}
		})
	}
}
