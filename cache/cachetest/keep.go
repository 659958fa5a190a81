package cachetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

func (on *trial) privateModes() {
	var n fills
	on.wantText(on.open(on.a), cache.Want{Key: file("x"), Holder: "row-1"}, n.text("content"), "content")
	on.must(filepath.WalkDir(on.root(), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode()&0o077 != 0 {
			on.Errorf("%s: mode %v", name, info.Mode())
		}
		return err
	}))
}

func (on *trial) listed() {
	c := on.open(on.a)
	var n fills
	x := on.wantText(c, cache.Want{Key: file("x"), Owner: "o/1", Holder: "row-1"}, n.text("content"), "content")
	on.get(c, cache.Want{Key: cache.Key{Kind: "bundle", ID: "y"}, Owner: "p"}, n.tree(map[string]string{"a": "12345", "b/c": "6789"}))
	on.must(c.Pin(on.Context(), file("x"), false, "job-2"))
	list, err := c.Entries(on.Context())
	slices.SortFunc(list, func(a, b cache.Entry) int { return strings.Compare(a.ID, b.ID) })
	if err != nil || len(list) != 2 {
		on.Fatalf("%d entries: %+v, %v", len(list), list, err)
	}
	e, y := list[0], list[1]
	if e.Key != file("x") || e.Path != x || e.Owner != "o/1" || e.Size != 7 || e.Files != 1 || !slices.Equal(e.Pins, []cache.Holder{"job-2", "row-1"}) ||
		e.Digest == "" || e.Digest == y.Digest || e.Made.IsZero() || e.Used.IsZero() || e.Private {
		on.Errorf("entry %+v", e)
	}
	if y.ID != "y" || y.Owner != "p" || y.Size != 9 || y.Files != 2 || len(y.Pins) > 0 {
		on.Errorf("entry %+v", y)
	}
	u, err := c.Usage()
	if err != nil || u.Entries != 2 || u.Bytes < 16 || u.Owners["o/1"] < 7 || u.Owners["p"] < 9 || u.Owners["o/1"]+u.Owners["p"] != u.Bytes {
		on.Errorf("usage %+v, %v", u, err)
	}
}

func (on *trial) pinsListed() {
	c := on.open(on.a)
	var n fills
	for _, w := range []cache.Want{{Key: file("x"), Holder: "row-1"}, {Key: file("x"), Holder: "row-2"}, {Key: file("y"), Holder: "row-1"}, {Key: file("y"), Holder: "row-1"}, {Key: file("z")}} {
		on.wantText(c, w, n.text("content"), "content")
	}
	on.must(c.Pin(on.Context(), file("z"), false, "a.b_c@d-9"))
	on.wantPins(c, "x row-1", "x row-2", "y row-1", "z a.b_c@d-9")
	for _, h := range []cache.Holder{"row-1", "row-1", "nobody"} {
		on.unpin(c, h)
		on.wantPins(c, "x row-2", "z a.b_c@d-9")
	}
}

func (on *trial) pinsOver() {
	var asked []cache.Holder
	fails := errBroken
	c := on.open(on.a, func(o *cache.Options) {
		o.Over = func(_ context.Context, holders []cache.Holder) (map[cache.Holder]bool, error) {
			asked = slices.Sorted(slices.Values(holders))
			return map[cache.Holder]bool{"row-over": true, "row-lives": false}, fails
		}
	})
	var n fills
	for _, h := range []cache.Holder{"row-over", "row-lives", "job-unknown"} {
		on.wantText(c, cache.Want{Key: file("x"), Holder: h}, n.text("content"), "content")
	}
	on.wantText(c, cache.Want{Key: file("y"), Holder: "row-over"}, n.text("content"), "content")
	if _, err := c.Trim(on.Context(), cache.TrimOptions{All: true}); !errors.Is(err, errBroken) {
		on.Errorf("trim, when nobody knows which holders are over: %v", err)
	}
	on.wantKeys(c, "x", "y")
	fails = nil
	if t, err := c.Trim(on.Context(), cache.TrimOptions{}); err != nil || len(t.Dropped) != 2 {
		on.Errorf("dropped %v, %v", t.Dropped, err)
	}
	if !slices.Equal(asked, []cache.Holder{"job-unknown", "row-lives", "row-over"}) {
		on.Errorf("asked for %q", asked)
	}
	on.wantPins(c, "x job-unknown", "x row-lives")
}

// block returns a text of 20 kB.
func block(id string) string { return id + strings.Repeat(".", 20_000-len(id)) }

// blocks makes entries of a block each, in this order.
func (on *trial) blocks(c *cache.Cache, owner string, ids ...string) {
	on.Helper()
	var n fills
	for _, id := range ids {
		on.wantText(c, cache.Want{Key: file(id), Owner: owner, Size: 20_000}, n.text(block(id)), block(id))
	}
}

func (on *trial) pinElsewhere() {
	a, b := on.open(on.a), on.open(on.b)
	on.blocks(a, "", "pinned", "key", "not")
	on.trim(a, false, 0) // a has listed the pins
	var n fills
	path := on.wantText(b, cache.Want{Key: file("pinned"), Holder: "row-1"}, n.text("made anew"), block("pinned"))
	on.must(b.Pin(on.Context(), file("key"), false, "user-1"))
	on.trim(a, true, 1)
	on.trim(a, true, 0)
	on.wantKeys(a, "key", "pinned")
	on.reads(path, block("pinned"))
	on.wantText(a, cache.Want{Key: file("pinned")}, n.text("made anew"), block("pinned"))
	on.wantFills(&n, 0)
	on.unpin(a, "row-1")
	on.trim(b, true, 1)
	on.wantKeys(a, "key")
}

func (on *trial) trimOrder() {
	free := on.open(on.a)
	on.blocks(free, "", "a", "b", "c", "d", "e")
	now := time.Now()
	hours := map[string]int{"a": 9, "b": 2, "c": 4, "d": 3, "e": 1} // long ago, because uses are recorded to some minutes
	list, err := free.Entries(on.Context())
	on.must(err)
	for _, e := range list {
		used := now.Add(-time.Duration(hours[e.ID]) * time.Hour)
		on.must(os.Chtimes(recordOf(e), used, used))
	}
	var n fills
	on.wantText(free, cache.Want{Key: file("a")}, n.text("made anew"), block("a")) // used just now
	c := on.open(on.b, func(o *cache.Options) { o.Size, o.High, o.Low = 100_000, .9, .6 })
	on.eventually("the use is seen", func() error {
		list, err := c.Entries(on.Context())
		if !slices.ContainsFunc(list, func(e cache.Entry) bool { return e.ID == "a" && now.Sub(e.Used) < 5*time.Minute }) {
			err = fmt.Errorf("entries %+v, %w", list, err)
		}
		return err
	})
	if retired := on.trim(c, false, 3); !slices.Equal(retired, []string{"c", "d", "b"}) {
		on.Errorf("retired %q, want those that were used longest ago", retired)
	}
	on.trim(c, false, 0)
	on.wantKeys(c, "a", "e")
}

func (on *trial) trimDry() {
	c := on.open(on.a, func(o *cache.Options) { o.Grace, o.Over = time.Millisecond, everyone })
	on.blocks(c, "", "a", "b")
	var n fills
	on.wantText(c, cache.Want{Key: file("b"), Holder: "row-1"}, n.text("made anew"), block("b"))
	before := names(on.root())
	t, err := c.Trim(on.Context(), cache.TrimOptions{DryRun: true, All: true})
	if err != nil || len(t.Retired) != 2 || len(t.Dropped) != 1 {
		on.Errorf("it would retire %+v and drop %+v, %v", t.Retired, t.Dropped, err)
	}
	if after := names(on.root()); !slices.Equal(before, after) {
		on.Errorf("there were %v, and are %v", before, after)
	}
	on.wantPins(c, "b row-1")
}

func (on *trial) quotaRoom() {
	c := on.open(on.a, func(o *cache.Options) { o.Size = 100_000 })
	for i := range 12 {
		on.blocks(c, "", fmt.Sprint("k", i))
		var sum int64
		for _, name := range names(on.root()) {
			if info, err := os.Lstat(filepath.Join(on.root(), name)); err == nil && info.Size() > 10_000 {
				sum += info.Size()
			}
		}
		if sum > 120_000 {
			on.Errorf("%d bytes of contents are on the disk", sum)
		}
	}
	if u, err := c.Usage(); err != nil || u.Bytes > 122_000 {
		on.Errorf("usage %+v, %v", u, err)
	}
}

func (on *trial) quotaOwner() {
	c := on.open(on.a, func(o *cache.Options) {
		o.Quota = func(owner string) int64 { return map[string]int64{"bounded": 50_000}[owner] }
	})
	on.blocks(c, "free", "f1", "f2", "f3", "f4", "f5")
	on.blocks(c, "bounded", "b1", "b2", "b3", "b4", "b5", "b6")
	if u, err := c.Usage(); err != nil || u.Owners["bounded"] > 73_000 || u.Owners["free"] < 100_000 {
		on.Errorf("usage %+v, %v", u, err)
	}
	list, err := c.Entries(on.Context())
	on.must(err)
	has := func(id string) bool {
		return slices.ContainsFunc(list, func(e cache.Entry) bool { return e.ID == id })
	}
	if !has("b6") || !has("f1") || has("b1") {
		on.Errorf("entries %+v", list)
	}
}

func (on *trial) quotaFull() {
	on.takesSeconds()
	c := on.open(on.a, func(o *cache.Options) { o.Size = 50_000 })
	on.blocks(c, "", "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		on.must(c.Pin(on.Context(), file(id), false, "row-1"))
	}
	var n fills
	if _, err := c.Get(on.Context(), cache.Want{Key: file("d"), Holder: "row-2", Size: 20_000}, n.text(block("d"))); !errors.Is(err, cache.ErrFull) {
		on.Errorf("error %v, want ErrFull", err)
	}
	on.wantFills(&n, 0)
	on.wantKeys(c, "a", "b", "c")
	on.unpin(c, "row-1")
	on.blocks(c, "", "d")
}
