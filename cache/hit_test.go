package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// oneFile fills a content.
func oneFile(_ context.Context, tmp string) error { return os.WriteFile(tmp, []byte("image"), 0o600) }

// pinsOf lists the pins of a key's content, and the files that they are.
func pinsOf(t *testing.T, c *Cache, holders []Holder) (files []os.FileInfo) {
	t.Helper()
	pins, err := c.listPins()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range holders {
		i := slices.IndexFunc(pins, func(p Pin) bool { return p.Holder == h })
		if i < 0 {
			t.Fatalf("%s has no pin", h)
		}
		info, err := os.Lstat(c.pinPath(pins[i].target, h))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, info)
	}
	return files
}

func TestHoldersOfOneHitHavePinsOfTheirOwn(t *testing.T) {
	t.Parallel()
	c, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := Want{Key: Key{Kind: "sif", ID: "image"}}
	if _, err := c.Get(t.Context(), w, oneFile); err != nil {
		t.Fatal(err)
	}
	e := c.namesOf(w.Key, false)
	if _, found, err := c.hitFor(t.Context(), e, []Holder{"old"}); !found || err != nil {
		t.Fatal(found, err)
	}
	holders := []Holder{"run-a", "old", "run-b", "run-c"}
	if _, found, err := c.hitFor(t.Context(), e, holders); !found || err != nil {
		t.Fatal(found, err)
	}
	files := pinsOf(t, c, holders)
	if !os.SameFile(files[0], files[2]) || !os.SameFile(files[0], files[3]) || os.SameFile(files[0], files[1]) {
		t.Error("the new pins are not one file")
	}
	if err := c.Unpin(t.Context(), "run-a"); err != nil {
		t.Fatal(err)
	}
	pinsOf(t, c, holders[1:])
}

func TestGetsOfOneKeyAtTheSameTimeAllPinIt(t *testing.T) {
	t.Parallel()
	c, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	holders := make([]Holder, 100)
	for i := range holders {
		holders[i] = Holder(fmt.Sprintf("run-%d", i))
		all.Go(func() {
			if _, err := c.Get(t.Context(), Want{Key: Key{Kind: "sif", ID: "image"}, Holder: holders[i]}, oneFile); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	pinsOf(t, c, holders)
	if len(c.hits.keys) > 0 {
		t.Errorf("%d keys are kept without a Get", len(c.hits.keys))
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := c.Get(ended, Want{Key: Key{Kind: "sif", ID: "image"}, Holder: "late"}, oneFile); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}
