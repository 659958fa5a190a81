package cachetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cl-slurm/cl-slurm/cache"
)

func (on *trial) keysDiffer() {
	c := on.open(on.a, hour)
	var n fills
	seen := map[string]bool{}
	for _, k := range []cache.Key{{Kind: "sif", ID: "a"}, {Kind: "sif", ID: "b"}, {Kind: "bundle", ID: "a"}, {Kind: "a"}, {Kind: "s", ID: "if\x00a"}, {Kind: "sif", ID: "../../x"}} {
		path := on.wantText(c, cache.Want{Key: k}, n.text(k.String()), k.String())
		if seen[path] {
			on.Errorf("%s: %s is another's", k, path)
		}
		seen[path] = true
	}
	for _, kind := range []string{"", "..", "a/b", "A", ".fill-x"} {
		if _, err := c.Get(on.Context(), cache.Want{Key: cache.Key{Kind: kind}}, n.text("")); err == nil {
			on.Errorf("the kind %q was taken", kind)
		}
	}
	for _, h := range []cache.Holder{".", "a/b", "a b", "-a", "a~b", cache.Holder(strings.Repeat("a", 129))} {
		if _, err := c.Get(on.Context(), cache.Want{Key: file("a"), Holder: h}, n.text("")); err == nil {
			on.Errorf("the holder %q was taken", h)
		}
		if err := c.Pin(on.Context(), file("a"), false, h); err == nil {
			on.Errorf("the holder %q could pin", h)
		}
	}
}

func (on *trial) directoryKept() {
	path := on.get(on.open(on.a, hour), cache.Want{Key: file("x")}, func(_ context.Context, tmp string) error {
		return errors.Join(
			os.MkdirAll(filepath.Join(tmp, "a", "empty"), 0o700),
			os.WriteFile(filepath.Join(tmp, "a", "unreadable"), []byte("x"), 0o600),
			os.Symlink("/nowhere", filepath.Join(tmp, "link")),
			os.Chmod(filepath.Join(tmp, "a", "unreadable"), 0o200),
			os.Chmod(filepath.Join(tmp, "a"), 0o500))
	})
	for name, want := range map[string]fs.FileMode{"": fs.ModeDir, "a": fs.ModeDir | 0o500, "a/unreadable": 0o200, "a/empty": fs.ModeDir | 0o700, "link": fs.ModeSymlink} {
		info, err := os.Lstat(filepath.Join(path, name))
		on.must(err)
		if info.Mode()&want != want || want&0o777 != 0 && info.Mode() != want {
			on.Errorf("%q: %v, want %v", name, info.Mode(), want)
		}
	}
	on.must(os.Chmod(filepath.Join(path, "a"), 0o700))
}

func (on *trial) failure() {
	c := on.open(on.a, hour)
	for name, fill := range map[string]cache.Fill{
		"broken": func(_ context.Context, tmp string) error {
			return errors.Join(os.MkdirAll(filepath.Join(tmp, "d"), 0o700), os.Chmod(tmp, 0o500), errBroken)
		},
		"panic": func(_ context.Context, tmp string) error {
			_ = os.WriteFile(tmp, []byte("half"), 0o600)
			panic(errBroken)
		},
		"nothing was made": func(context.Context, string) error { return nil },
		"a link":           func(_ context.Context, tmp string) error { return os.Symlink("/etc/passwd", tmp) },
	} {
		_, err := c.Get(on.Context(), cache.Want{Key: file("x"), Size: 10}, fill)
		if err == nil || name == "broken" && !errors.Is(err, errBroken) || name == "panic" && !strings.Contains(err.Error(), "panic: "+errBroken.Error()) {
			on.Errorf("%s: error %v", name, err)
		}
	}
	if left := names(on.root()); len(left) > 0 {
		on.Errorf("failures left %v", left)
	}
	var n fills
	on.wantText(c, cache.Want{Key: file("x")}, n.text("content"), "content")
	on.wantFills(&n, 1)
}

func (on *trial) callersAtOnce() {
	c := on.open(on.a, hour)
	var n fills
	release := make(chan struct{})
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			path, err := c.Get(on.Context(), cache.Want{Key: file("x")}, func(ctx context.Context, tmp string) error {
				<-release
				return n.text("content")(ctx, tmp)
			})
			if err != nil {
				on.Error(err)
			}
			on.reads(path, "content")
		})
	}
	close(release)
	group.Wait()
	on.wantFills(&n, 1)
}

func (on *trial) resumed() {
	c := on.open(on.a, hour)
	w := cache.Want{Key: file("x"), Resume: true}
	_, err := c.Get(on.Context(), w, func(_ context.Context, tmp string) error {
		return errors.Join(os.WriteFile(tmp, []byte("half"), 0o600), errBroken)
	})
	if !errors.Is(err, errBroken) {
		on.Errorf("error %v", err)
	}
	goOn := func(_ context.Context, tmp string) error {
		b, _ := os.ReadFile(tmp)
		return os.WriteFile(tmp, append(b, " rest"...), 0o600)
	}
	on.wantText(c, cache.Want{Key: file("y")}, goOn, " rest")
	on.wantText(c, w, goOn, "half rest")
}

func (on *trial) beside() {
	var n fills
	path := on.wantText(on.open(on.a, hour), cache.Want{Key: file("x")}, func(ctx context.Context, tmp string) error {
		return errors.Join(n.text("content")(ctx, tmp), os.WriteFile(tmp+".state", nil, 0o600), os.MkdirAll(filepath.Join(filepath.Dir(tmp), "d", "e"), 0o700))
	}, "content")
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		on.Errorf("beside the content there is %v, %v", list, err)
	}
}

func (on *trial) foundElsewhere() {
	on.a.dir, on.b.dir = filepath.Join(on.a.dir, "deep", "cache"), filepath.Join(on.b.dir, "deep", "cache")
	var n fills
	first := on.wantText(on.open(on.a, hour), cache.Want{Key: file("x")}, n.text("made on a"), "made on a")
	second := on.wantText(on.open(on.b, hour), cache.Want{Key: file("x")}, n.text("made on b"), "made on a")
	if strings.TrimPrefix(first, on.a.dir) != strings.TrimPrefix(second, on.b.dir) {
		on.Errorf("it is at %s and at %s", first, second)
	}
	on.wantFills(&n, 1)
}

// missedBefore: a host may still believe that a file is missing.
func (on *trial) missedBefore() {
	a, b := on.open(on.a, hour), on.open(on.b, hour)
	var n fills
	for range 3 {
		if _, err := b.Get(on.Context(), cache.Want{Key: file("x")}, func(context.Context, string) error { return errBroken }); !errors.Is(err, errBroken) {
			on.Errorf("error %v", err)
		}
	}
	on.wantText(a, cache.Want{Key: file("x")}, n.text("made on a"), "made on a")
	on.wantText(b, cache.Want{Key: file("x")}, n.text("made on b"), "made on a")
	on.wantFills(&n, 1)
}

// trimmedElsewhere: a host may still believe that a file exists.
func (on *trial) trimmedElsewhere() {
	a, b := on.open(on.a, hour), on.open(on.b, hour)
	var n fills
	on.wantText(a, cache.Want{Key: file("x")}, n.text("made on a"), "made on a")
	on.wantText(b, cache.Want{Key: file("x")}, n.text("made on b"), "made on a")
	on.trim(a, true, 1)
	on.eventually("it is made anew", func() error {
		path, err := b.Get(on.Context(), cache.Want{Key: file("x"), Holder: "row-1"}, n.text("made on b"))
		if err == nil {
			on.reads(path, "made on b")
		}
		return err
	})
}

// damage: Verify or the next Get finds every kind of damage.
func (on *trial) damage() {
	c, other := on.open(on.a, hour), on.open(on.b, hour)
	var n fills
	for _, id := range []string{"flipped", "cut", "missing", "record", "sound"} {
		on.wantText(c, cache.Want{Key: file(id), Holder: "row-1"}, n.text("the content"), "the content")
	}
	list, err := c.Entries(on.Context())
	on.must(err)
	for _, e := range list {
		switch e.ID {
		case "flipped":
			err = os.WriteFile(e.Path, []byte("the c0ntent"), 0o600)
		case "cut":
			err = os.Truncate(e.Path, 3)
		case "missing":
			err = os.RemoveAll(e.Path)
		case "record":
			err = os.WriteFile(recordOf(e), []byte("{"), 0o600)
		}
		on.must(err)
	}
	found := map[string]bool{}
	on.must(c.Verify(on.Context(), func(e cache.Entry, err error) { found[e.ID] = err != nil }))
	if !found["flipped"] || found["sound"] {
		on.Errorf("damage was found in %v", found)
	}
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
	on.wantFills(&n, 5+4)
}

// recordOf returns the path of an entry's record (docs/contributors/cache.md).
func recordOf(e cache.Entry) string {
	return filepath.Join(filepath.Dir(filepath.Dir(e.Path)), e.Hash+".json")
}
