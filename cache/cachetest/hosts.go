package cachetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

// orders are for a process on host a that fills a key.
func (on *trial) orders(text string, more ...func(*cache.Options)) puppetOrders {
	return puppetOrders{
		Dir: on.a.dir, Options: on.options(on.a, more...), Want: cache.Want{Key: file("x"), Holder: "row-x", Size: int64(len(text))}, Text: text,
	}
}

// hour makes leases outlast the test.
func hour(o *cache.Options) { o.Term = time.Hour }

func (on *trial) livingFill() {
	on.takesSeconds()
	term := func(o *cache.Options) { o.Term = max(o.Term, 2*time.Second) }
	p := on.filling(on.orders("made on a", term))
	b := on.open(on.b, term)
	var n fills
	var mu sync.Mutex
	var named string
	w := cache.Want{Key: file("x"), Waiting: func(by string) {
		mu.Lock()
		defer mu.Unlock()
		named = by
	}}
	ctx, cancel := context.WithTimeout(on.Context(), 2*max(on.Options.Term, 2*time.Second))
	defer cancel()
	if _, err := b.Get(ctx, w, n.text("made on b")); !errors.Is(err, context.DeadlineExceeded) {
		on.Errorf("error %v, want that of the context", err)
	}
	mu.Lock()
	if !strings.Contains(named, on.a.host) {
		on.Errorf("it waited for %q", named)
	}
	mu.Unlock()
	p.goOn()
	path := p.ends()
	second := on.wantText(b, w, n.text("made on b"), "made on a")
	if strings.TrimPrefix(path, on.a.dir) != strings.TrimPrefix(second, on.b.dir) {
		on.Errorf("it is at %s and at %s", path, second)
	}
	on.wantFills(&n, 0)
}

// deadHere: the next fill of the host resumes the dead fill's content.
func (on *trial) deadHere() {
	o := on.orders("half and half", hour)
	o.Want.Resume = true
	on.filling(o).die()
	on.wantText(on.open(on.a, hour), cache.Want{Key: file("x"), Resume: true}, func(_ context.Context, tmp string) error {
		on.reads(tmp, "half a")
		return os.WriteFile(tmp, []byte("whole"), 0o600)
	}, "whole")
}

func (on *trial) deadElsewhere() {
	on.filling(on.orders("never whole")).die()
	var n fills
	waited := false
	on.wantText(on.open(on.b), cache.Want{Key: file("x"), Waiting: func(string) { waited = true }}, n.text("whole"), "whole")
	if !waited {
		on.Error("the lease was taken from a process of another host that may live")
	}
}

// stopped: a stopped process loses its lease, and notices only after another process has filled the
// key.
func (on *trial) stopped(s side) {
	o := on.orders("made by the one that was stopped")
	o.Want.Resume = true
	p := on.filling(o)
	p.Signal(syscall.SIGSTOP)
	c := on.open(s)
	const text = "made by its successor, and longer than what the other made"
	var n fills
	w := cache.Want{Key: file("x"), Holder: "row-2", Resume: true}
	path := on.wantText(c, w, n.text(text), text)
	p.Signal(syscall.SIGCONT)
	p.goOn()
	if other := p.ends(); strings.TrimPrefix(other, on.a.dir) != strings.TrimPrefix(path, s.dir) {
		on.Errorf("the one that was stopped got %s, its successor %s", other, path)
	}
	on.reads(path, text)
	on.wantText(on.open(on.a), w, n.text("made anew"), text)
	on.must(c.Verify(on.Context(), func(e cache.Entry, err error) {
		if err != nil {
			on.Errorf("%s is damaged: %v", e.Key, err)
		}
	}))
	if left, _ := filepath.Glob(filepath.Join(on.root(), "leases", "*")); len(left) > 0 {
		on.Errorf("leases stand: %v", left)
	}
}

// leftovers: those of a killed fill are removed, those of a living one stay.
func (on *trial) leftovers() {
	on.takesSeconds()
	grace := func(o *cache.Options) { o.Grace = 2*o.Term + o.Term/2 }
	dead, living := on.orders("dead content", grace), on.orders("living content", grace)
	dead.Want.Key, living.Want.Key = file("dead"), file("living")
	p := on.filling(living)
	on.filling(dead).die()
	c := on.open(on.b, grace)
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
		if err == nil && u.Bytes > living.Want.Size {
			err = fmt.Errorf("usage is %+v", u)
		}
		return err
	})
	p.goOn()
	on.reads(p.ends(), living.Text)
}
