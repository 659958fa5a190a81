package cachetest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

// block is a text of 20 kB.
func block(id string) string { return id + strings.Repeat(".", 20_000-len(id)) }

// blocks makes entries of a block each, in this order.
func (on *trial) blocks(c *cache.Cache, owner string, ids ...string) {
	on.Helper()
	var n fills
	for _, id := range ids {
		on.wantText(c, cache.Want{Key: file(id), Owner: owner, Size: 20_000}, n.text(block(id)), block(id))
	}
}

func (on *trial) trimOrder() {
	free := on.open(on.a)
	on.blocks(free, "", "a", "b", "c", "d", "e")
	// Last uses are noted to some minutes.
	now := time.Now()
	for id, ago := range map[string]time.Duration{"a": 9 * time.Hour, "b": 2 * time.Hour, "c": 4 * time.Hour, "d": 3 * time.Hour, "e": time.Hour} {
		on.must("age", func() error {
			list, err := free.Entries(on.Context())
			for _, e := range list {
				if e.ID == id {
					err = errors.Join(err, os.Chtimes(recordOf(e), now.Add(-ago), now.Add(-ago)))
				}
			}
			return err
		})
	}
	var n fills
	on.wantText(free, cache.Want{Key: file("a")}, n.text("made anew"), block("a")) // used just now
	c := on.open(on.b, func(o *cache.Options) { o.Size, o.High, o.Low = 100_000, .9, .6 })
	on.eventually("the use is seen", func() error { return on.used(c, "a", now) })
	done := on.trim(c, cache.TrimOptions{}, func(t cache.Trimmed) bool { return t.Removed >= 3 })
	var ids []string
	for _, e := range done.Retired {
		ids = append(ids, e.ID)
	}
	if !slices.Equal(ids, []string{"c", "d", "b"}) {
		on.Errorf("retired %q, want those that were used longest ago", ids)
	}
	on.trim(c, cache.TrimOptions{}, func(cache.Trimmed) bool { return true })
	on.wantKeys(c, "a", "e")
}

// used says whether a host knows that an entry was used.
func (on *trial) used(c *cache.Cache, id string, since time.Time) error {
	list, err := c.Entries(on.Context())
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.ID == id && e.Used.After(since.Add(-5*time.Minute)) {
			return nil
		}
	}
	return fmt.Errorf("of %+v", list)
}

func (on *trial) trimPinned() {
	c := on.open(on.a)
	on.blocks(c, "", "a", "b", "c")
	var n fills
	path := on.wantText(c, cache.Want{Key: file("a"), Holder: "row-1"}, n.text("made anew"), block("a"))
	on.must("pin", func() error { return c.Pin(on.Context(), file("b"), false, "row-2") })
	on.trim(c, cache.TrimOptions{All: true}, func(t cache.Trimmed) bool { return t.Removed >= 1 })
	on.trim(c, cache.TrimOptions{All: true}, func(cache.Trimmed) bool { return true })
	on.wantKeys(c, "a", "b")
	if again := on.wantText(c, cache.Want{Key: file("a")}, n.text("made anew"), block("a")); again != path {
		on.Errorf("what is pinned is at %s now", again)
	}
	on.unpin(c, "row-1")
	on.trim(c, cache.TrimOptions{All: true}, func(t cache.Trimmed) bool { return t.Removed >= 1 })
	on.wantKeys(c, "b")
}

func (on *trial) trimDry() {
	c := on.open(on.a, func(o *cache.Options) {
		o.Grace = time.Millisecond
		o.Over = everyone
	})
	on.blocks(c, "", "a", "b")
	var n fills
	on.wantText(c, cache.Want{Key: file("b"), Holder: "row-1"}, n.text("made anew"), block("b"))
	before := names(on.root())
	on.must("trim", func() error {
		t, err := c.Trim(on.Context(), cache.TrimOptions{DryRun: true, All: true})
		if err == nil && (len(t.Retired) != 2 || len(t.Dropped) != 1) {
			on.Errorf("it would retire %+v and drop %+v", t.Retired, t.Dropped)
		}
		return err
	})
	if after := names(on.root()); !slices.Equal(before, after) && !on.Faulty {
		on.Errorf("there were %v, and are %v", before, after)
	}
	on.wantPins(c, "b row-1")
}

func (on *trial) quotaRoom() {
	c := on.open(on.a, func(o *cache.Options) { o.Size = 100_000 })
	for i := range 12 {
		on.blocks(c, "", fmt.Sprint("k", i))
		if n := onServer(on.root()); n > 120_000 {
			on.Errorf("%d bytes of contents are on the disk", n)
		}
	}
	u, err := c.Usage()
	if err != nil && !on.Faulty || u.Bytes > 122_000 {
		on.Errorf("usage %+v, %v", u, err)
	}
}

// onServer is the size of all large files below a directory.
func onServer(root string) (sum int64) {
	for _, name := range names(root) {
		if info, err := os.Lstat(root + "/" + name); err == nil && info.Size() > 10_000 {
			sum += info.Size()
		}
	}
	return sum
}

func (on *trial) quotaOwner() {
	c := on.open(on.a, func(o *cache.Options) {
		o.Quota = func(owner string) int64 { return map[string]int64{"bounded": 50_000}[owner] }
	})
	on.blocks(c, "free", "f1", "f2", "f3", "f4", "f5")
	on.blocks(c, "bounded", "b1", "b2", "b3", "b4", "b5", "b6")
	u, err := c.Usage()
	if err != nil && !on.Faulty || u.Owners["bounded"] > 73_000 || u.Owners["free"] < 100_000 {
		on.Errorf("usage %+v, %v", u, err)
	}
	if got := on.keys(c); !slices.Contains(got, "b6") || !slices.Contains(got, "f1") || slices.Contains(got, "b1") {
		on.Errorf("entries %q", got)
	}
}

func (on *trial) quotaFull() {
	on.takesSeconds()
	c := on.open(on.a, func(o *cache.Options) { o.Size = 50_000 })
	on.blocks(c, "", "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		on.must("pin", func() error { return c.Pin(on.Context(), file(id), false, "row-1") })
	}
	var n fills
	_, err := c.Get(on.Context(), cache.Want{Key: file("d"), Holder: "row-2", Size: 20_000}, n.text(block("d")))
	if !errors.Is(err, cache.ErrFull) && (!on.Faulty || !transient(err)) {
		on.Errorf("error %v, want ErrFull", err)
	}
	if n.Load() > 0 {
		on.Error("it was filled although there was no room")
	}
	on.wantKeys(c, "a", "b", "c")
	on.unpin(c, "row-1")
	on.blocks(c, "", "d")
}
