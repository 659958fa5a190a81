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

func (on *trial) secondRequest() {
	on.a.dir = filepath.Join(on.a.dir, "deep", "cache")
	var n fills
	var paths [3]string
	for i := range paths {
		c := on.open(on.a) // as another process, later
		paths[i] = on.wantText(c, cache.Want{Key: file("x")}, n.text("content"), "content")
	}
	if paths[1] != paths[0] || paths[2] != paths[0] {
		on.Errorf("paths %q", paths)
	}
	on.wantFills(&n, 1)
}

func (on *trial) keysDiffer() {
	c := on.open(on.a)
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
	c := on.open(on.a)
	var path string
	on.must("get", func() (err error) {
		path, err = c.Get(on.Context(), cache.Want{Key: file("x")}, func(_ context.Context, tmp string) error {
			return errors.Join(
				os.MkdirAll(filepath.Join(tmp, "a", "empty"), 0o700),
				os.WriteFile(filepath.Join(tmp, "a", "unreadable"), []byte("x"), 0o600),
				os.Symlink("/nowhere", filepath.Join(tmp, "link")),
				os.Chmod(filepath.Join(tmp, "a", "unreadable"), 0o200),
				os.Chmod(filepath.Join(tmp, "a"), 0o500)) //nolint:gosec // what is kept
		})
		return err
	})
	for name, want := range map[string]fs.FileMode{"": fs.ModeDir, "a": fs.ModeDir | 0o500, "a/unreadable": 0o200, "a/empty": fs.ModeDir | 0o700, "link": fs.ModeSymlink} {
		on.must("look at "+name, func() error {
			info, err := os.Lstat(filepath.Join(path, name))
			if err == nil && (info.Mode()&want != want || want&0o777 != 0 && info.Mode() != want) {
				on.Errorf("%q: %v, want %v", name, info.Mode(), want)
			}
			return err
		})
	}
	on.must("clean up", func() error { return os.Chmod(filepath.Join(path, "a"), 0o700) }) //nolint:gosec // it is about to go
}

func (on *trial) failure() {
	c := on.open(on.a)
	for name, fill := range map[string]cache.Fill{
		"broken": func(_ context.Context, tmp string) error {
			return errors.Join(os.MkdirAll(filepath.Join(tmp, "d"), 0o700), os.Chmod(tmp, 0o500), errBroken) //nolint:gosec // hard to remove
		},
		"panic": func(_ context.Context, tmp string) error {
			_ = os.WriteFile(tmp, []byte("half"), 0o600)
			panic(errBroken)
		},
		"nothing was made": func(context.Context, string) error { return nil },
		"a link": func(_ context.Context, tmp string) error {
			return os.Symlink("/etc/passwd", tmp)
		},
	} {
		_, err := c.Get(on.Context(), cache.Want{Key: file("x"), Size: 10}, fill)
		if err == nil || name == "broken" && !errors.Is(err, errBroken) || name == "panic" && !strings.Contains(err.Error(), "panic: "+errBroken.Error()) {
			on.Errorf("%s: error %v", name, err)
		}
	}
	if left := names(filepath.Join(on.server(), filepath.Base(on.a.dir))); len(left) > 0 && !on.Faulty {
		on.Errorf("failures left %v", left)
	}
	var n fills
	on.wantText(c, cache.Want{Key: file("x")}, n.text("content"), "content")
	on.wantFills(&n, 1)
}

func (on *trial) callersAtOnce() {
	c := on.open(on.a)
	var n fills
	release := make(chan struct{})
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			path, err := c.Get(on.Context(), cache.Want{Key: file("x")}, func(ctx context.Context, tmp string) error {
				<-release
				return n.text("content")(ctx, tmp)
			})
			if err != nil && on.Faulty && transient(err) {
				return
			}
			if err != nil {
				on.Error(err)
			} else if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
				on.Errorf("content %q, %v", got, err)
			}
		})
	}
	close(release)
	group.Wait()
	on.wantFills(&n, 1)
}

type contextKey struct{}

func (on *trial) callerLeaves() {
	c := on.open(on.a)
	began, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fill := func(ctx context.Context, tmp string) error {
		once.Do(func() { close(began) })
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-release:
			return os.WriteFile(tmp, fmt.Append(nil, ctx.Value(contextKey{})), 0o600)
		}
	}
	first, leave := context.WithCancel(context.WithValue(on.Context(), contextKey{}, "value"))
	gone := make(chan error, 1)
	go func() {
		_, err := c.Get(first, cache.Want{Key: file("x")}, fill)
		gone <- err
	}()
	select {
	case <-began:
	case err := <-gone:
		on.Skipf("the disk failed it: %v", err) // only a faulty one
	}
	stayed := make(chan struct{})
	var text string
	go func() { // it joins the first, or comes after that has left: both are right
		defer close(stayed)
		_, text = on.get(c, cache.Want{Key: file("x")}, func(ctx context.Context, tmp string) error {
			return fill(context.WithValue(ctx, contextKey{}, "value"), tmp)
		})
	}()
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		on.Errorf("the one that left got %v", err)
	}
	close(release)
	if <-stayed; text != "value" {
		on.Errorf("the one that stayed got %q", text)
	}
}

func (on *trial) resumed() {
	c := on.open(on.a)
	halt := func(_ context.Context, tmp string) error {
		_ = os.WriteFile(tmp, []byte("half"), 0o600)
		return errBroken
	}
	w := cache.Want{Key: file("x"), Resume: true}
	on.eventually("a fill that breaks off", func() error {
		if _, err := c.Get(on.Context(), w, halt); !errors.Is(err, errBroken) {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	var found string
	look := func(_ context.Context, tmp string) error {
		b, _ := os.ReadFile(tmp)
		found = string(b)
		return os.WriteFile(tmp, append(b, " rest"...), 0o600) //nolint:gosec // tmp is the cache's
	}
	fresh := w
	fresh.Key, fresh.Resume = file("y"), false
	on.wantText(c, fresh, look, " rest")
	if found != "" {
		on.Errorf("a fill that resumes nothing found %q", found)
	}
	on.wantText(c, w, look, "half rest")
	if found != "half" && !on.Faulty {
		on.Errorf("a fill that resumes found %q", found)
	}
}

func (on *trial) beside() {
	c := on.open(on.a)
	var n fills
	path := on.wantText(c, cache.Want{Key: file("x")}, func(ctx context.Context, tmp string) error {
		return errors.Join(n.text("content")(ctx, tmp), os.WriteFile(tmp+".state", nil, 0o600), os.MkdirAll(filepath.Join(filepath.Dir(tmp), "d", "e"), 0o700))
	}, "content")
	on.must("list", func() error {
		list, err := os.ReadDir(filepath.Dir(path))
		if err == nil && len(list) != 1 {
			on.Errorf("beside the content there is %v", list)
		}
		return err
	})
}
