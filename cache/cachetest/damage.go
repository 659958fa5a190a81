package cachetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/cache"
)

func (on *trial) damage() {
	c := on.open(on.a)
	var n fills
	whole := n.text("the content")
	for _, id := range []string{"flipped", "cut", "missing", "record", "sound"} {
		on.wantText(c, cache.Want{Key: file(id), Holder: "row-1"}, whole, "the content")
	}
	on.harm(c)
	found := map[string]bool{}
	on.must("verify", func() error {
		return c.Verify(on.Context(), func(e cache.Entry, err error) {
			if err != nil && !transient(err) {
				found[e.ID] = true
			}
		})
	})
	if !found["flipped"] || found["sound"] {
		on.Errorf("damage was found in %v", found)
	}
	before := n.Load()
	other := on.open(on.b)
	for _, id := range []string{"flipped", "cut", "missing", "record"} {
		on.eventually("damage is mended", func() error {
			path, err := other.Get(on.Context(), cache.Want{Key: file(id), Holder: "row-2"}, n.text("the content"))
			if err != nil {
				return err
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != "the content" {
				return fmt.Errorf("%s is %q, %w", id, b, err)
			}
			return nil
		})
	}
	on.wantText(other, cache.Want{Key: file("sound")}, n.text("made anew"), "the content")
	n.Add(-before)
	on.wantFills(&n, 4)
}

// harm damages entries in different ways.
func (on *trial) harm(c *cache.Cache) {
	on.Helper()
	var list []cache.Entry
	on.must("list", func() (err error) {
		list, err = c.Entries(on.Context())
		return err
	})
	for _, e := range list {
		on.must("harm", func() error {
			switch e.ID {
			case "flipped":
				return os.WriteFile(e.Path, []byte("the c0ntent"), 0o600)
			case "cut":
				return os.Truncate(e.Path, 3)
			case "missing":
				return os.RemoveAll(e.Path)
			case "record":
				return os.WriteFile(recordOf(e), []byte("{"), 0o600)
			}
			return nil
		})
	}
}

// leftovers: what a killed fill leaves goes, what a living one has made stays.
func (on *trial) leftovers() {
	on.takesSeconds()
	o := on.options(on.a, func(o *cache.Options) { o.Grace = 2*o.Term + o.Term/2 })
	dead := on.filling(puppetOrders{Dir: on.a.dir, Options: told(o), Key: file("dead"), Holder: "row-1", Size: 20, Text: "dead content"})
	living := on.filling(puppetOrders{Dir: on.a.dir, Options: told(o), Key: file("living"), Text: "living content"})
	dead.die()
	c := on.open(on.b, func(p *cache.Options) { p.Grace = o.Grace })
	on.unpin(c, "row-1")
	on.wantOnDisk("dead", 1)
	on.eventually("what the dead has left is swept", func() error {
		if _, err := c.Trim(on.Context(), cache.TrimOptions{All: true}); err != nil {
			return err
		}
		for _, name := range names(on.root()) {
			if b, _ := os.ReadFile(filepath.Join(on.root(), name)); strings.Contains(string(b), "dead") {
				return fmt.Errorf("there is %s", name)
			}
		}
		u, err := c.Usage()
		if err == nil && u.Bytes >= 20 {
			err = fmt.Errorf("usage is %+v", u)
		}
		return err
	})
	living.goOn()
	if path, ok := living.ends(); ok {
		if b, err := os.ReadFile(path); err != nil || string(b) != "living content" {
			on.Errorf("what lives is %q, %v", b, err)
		}
	} else if !on.Faulty {
		on.Error("what lives was swept")
	}
}
