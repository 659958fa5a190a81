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
	"syscall"

	"github.com/cl-slurm/cl-slurm/cache"
)

// root is the cache as the file server has it.
func (on *trial) root() string { return filepath.Join(on.server(), filepath.Base(on.a.dir)) }

// recordOf is the path of an entry's record: docs/cache.md.
func recordOf(e cache.Entry) string {
	return filepath.Join(filepath.Dir(filepath.Dir(e.Path)), e.Hash+".json")
}

func (on *trial) privateModes() {
	c := on.open(on.a)
	var n fills
	on.wantText(c, cache.Want{Key: file("x"), Holder: "row-1"}, n.text("content"), "content")
	err := filepath.WalkDir(on.root(), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode()&0o077 != 0 {
			on.Errorf("%s: mode %v", name, info.Mode())
		}
		return err
	})
	if err != nil {
		on.Error(err)
	}
}

func (on *trial) groupModes() {
	gid := os.Getgid()
	if os.Geteuid() == 0 {
		gid = 54321
	}
	on.must("make the directory", func() error {
		if err := os.MkdirAll(on.a.dir, 0o700); err != nil {
			return err
		}
		return errors.Join(os.Chown(on.a.dir, -1, gid), os.Chmod(on.a.dir, 0o770|fs.ModeSetgid))
	})
	c := on.open(on.a, func(o *cache.Options) { o.Group = true })
	var n fills
	var shared, private string
	tree := n.tree(map[string]string{"d/f": "content"})
	on.must("get", func() (err error) {
		shared, err = c.Get(on.Context(), cache.Want{Key: file("shared"), Holder: "row-1"}, tree)
		return err
	})
	on.must("get", func() (err error) {
		private, err = c.Get(on.Context(), cache.Want{Key: file("private"), Private: true}, tree)
		return err
	})
	if lacks := on.forGroup(filepath.Join(shared, "d/f"), gid); lacks != "" {
		on.Errorf("the group cannot read what is shared: %s", lacks)
	}
	if lacks := on.forGroup(filepath.Join(private, "d/f"), gid); lacks == "" {
		on.Error("the group can read what is private")
	}
	_ = filepath.WalkDir(on.root(), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it has gone
		}
		if info, err := d.Info(); err == nil && info.Mode()&0o007 != 0 {
			on.Errorf("%s is open to others: %v", name, info.Mode())
		}
		return nil
	})
}

// forGroup says what keeps a group from reading a file of the cache, or
// nothing.
func (on *trial) forGroup(path string, gid int) (lacks string) {
	on.Helper()
	for name := path; len(name) >= len(on.a.dir); name = filepath.Dir(name) {
		on.must("look at "+name, func() error {
			info, err := os.Lstat(name)
			if err != nil {
				return err
			}
			need := fs.FileMode(0o040)
			if info.IsDir() {
				need = 0o050
			}
			if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Gid) != gid || info.Mode()&need != need {
				lacks = fmt.Sprintf("%s: %v, group %d", name, info.Mode(), st.Gid)
			}
			return nil
		})
	}
	return lacks
}

func (on *trial) listed() {
	c := on.open(on.a)
	var n fills
	x := on.wantText(c, cache.Want{Key: file("x"), Owner: "o/1", Holder: "row-1"}, n.text("content"), "content")
	on.must("get", func() error {
		_, err := c.Get(on.Context(), cache.Want{Key: cache.Key{Kind: "bundle", ID: "y"}, Owner: "p"}, n.tree(map[string]string{"a": "12345", "b/c": "6789"}))
		return err
	})
	on.must("pin", func() error { return c.Pin(on.Context(), file("x"), false, "job-2") })
	on.eventually("list", func() error {
		list, err := c.Entries(on.Context())
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b cache.Entry) int { return strings.Compare(a.ID, b.ID) })
		if len(list) != 2 {
			return fmt.Errorf("%d entries: %+v", len(list), list)
		}
		e, y := list[0], list[1]
		switch {
		case e.Key != file("x") || e.Path != x || e.Owner != "o/1" || e.Size != 7 || e.Files != 1 || !slices.Equal(e.Pins, []cache.Holder{"job-2", "row-1"}):
			return fmt.Errorf("entry %+v", e)
		case e.Digest == "" || e.Digest == y.Digest || e.Made.IsZero() || e.Used.IsZero() || e.Private:
			return fmt.Errorf("entry %+v", e)
		case y.ID != "y" || y.Owner != "p" || y.Size != 9 || y.Files != 2 || len(y.Pins) > 0:
			return fmt.Errorf("entry %+v", y)
		}
		u, err := c.Usage()
		if err == nil && (u.Entries != 2 || u.Bytes < 16 || u.Owners["o/1"] < 7 || u.Owners["p"] < 9 || u.Owners["o/1"]+u.Owners["p"] != u.Bytes) {
			err = fmt.Errorf("usage %+v", u)
		}
		return err
	})
}

// pins are those that a host has now: "ID holder".
func (on *trial) pins(c *cache.Cache) (all []string) {
	on.Helper()
	on.must("list pins", func() error {
		ids := map[string]string{}
		list, err := c.Entries(on.Context())
		if err != nil {
			return err
		}
		for _, e := range list {
			ids[e.Hash] = e.ID
		}
		pins, err := c.Pins()
		all = nil
		for _, p := range pins {
			all = append(all, ids[p.Hash]+" "+string(p.Holder))
		}
		return err
	})
	slices.Sort(all)
	return all
}

func (on *trial) wantPins(c *cache.Cache, want ...string) {
	on.Helper()
	if got := on.pins(c); !slices.Equal(got, want) {
		on.Errorf("pins %q, want %q", got, want)
	}
}

func (on *trial) unpin(c *cache.Cache, h cache.Holder) {
	on.Helper()
	on.must("unpin", func() error { return c.Unpin(on.Context(), h) })
}

func (on *trial) pinsListed() {
	c := on.open(on.a)
	var n fills
	for _, w := range []cache.Want{{Key: file("x"), Holder: "row-1"}, {Key: file("x"), Holder: "row-2"}, {Key: file("y"), Holder: "row-1"}, {Key: file("y"), Holder: "row-1"}, {Key: file("z")}} {
		on.wantText(c, w, n.text("content"), "content")
	}
	on.must("pin", func() error { return c.Pin(on.Context(), file("z"), false, "a.b_c@d-9") })
	on.wantPins(c, "x row-1", "x row-2", "y row-1", "z a.b_c@d-9")
	on.unpin(c, "row-1")
	on.wantPins(c, "x row-2", "z a.b_c@d-9")
	on.unpin(c, "row-1")
	on.unpin(c, "nobody")
	on.wantPins(c, "x row-2", "z a.b_c@d-9")
}

func (on *trial) pinsOver() {
	asked, answer := []cache.Holder{}, map[cache.Holder]bool{"row-over": true, "row-lives": false}
	var fails error
	c := on.open(on.a, func(o *cache.Options) {
		o.Over = func(_ context.Context, holders []cache.Holder) (map[cache.Holder]bool, error) {
			asked = slices.Clone(holders)
			return answer, fails
		}
	})
	var n fills
	for _, h := range []cache.Holder{"row-over", "row-lives", "job-unknown"} {
		on.wantText(c, cache.Want{Key: file("x"), Holder: h}, n.text("content"), "content")
	}
	on.wantText(c, cache.Want{Key: file("y"), Holder: "row-over"}, n.text("content"), "content")
	fails = errBroken
	if _, err := c.Trim(on.Context(), cache.TrimOptions{All: true}); !errors.Is(err, errBroken) && !on.Faulty {
		on.Errorf("trim, when nobody knows which holders are over: %v", err)
	}
	on.wantKeys(c, "x", "y")
	fails = nil
	on.trim(c, cache.TrimOptions{}, func(t cache.Trimmed) bool { return len(t.Dropped) == 2 || on.Faulty && len(t.Dropped) > 0 })
	slices.Sort(asked)
	if !on.Faulty && !slices.Equal(asked, []cache.Holder{"job-unknown", "row-lives", "row-over"}) {
		on.Errorf("asked for %q", asked)
	}
	on.wantPins(c, "x job-unknown", "x row-lives")
}
