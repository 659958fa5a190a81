package cachetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

// twoHosts are the tests that need two hosts, by the promise that each guards.
func twoHosts() map[string]func(*trial) {
	return map[string]func(*trial){
		"FilledOnOneHostIsFoundOnTheOther":                    (*trial).foundElsewhere,
		"OneThatMissedFindsWhatTheOtherMade":                  (*trial).missedBefore,
		"PinOnOneHostSavesFromTrimOnTheOther":                 (*trial).pinElsewhere,
		"PinOutlivesItsProcessAndEndsOnAnyHost":               (*trial).pinOutlives,
		"TrimmedOnOneHostIsMadeAnewByTheOther":                (*trial).trimmedElsewhere,
		"DamagedOnOneHostIsMadeAnewByTheOther":                (*trial).damage,
		"LivingFillIsWaitedForAndNamed":                       (*trial).livingFill,
		"LeaseOfADeadProcessIsTakenOverAtOnceOnItsHost":       (*trial).deadHere,
		"LeaseOfADeadProcessIsTakenOverAfterItsTermElsewhere": (*trial).deadElsewhere,
		"KilledFillIsResumedOnItsHost":                        (*trial).killedResumed,
		"StoppedProcessPublishesNothingAfterItWasGivenUp":     func(on *trial) { on.stopped(false) },
		"StoppedProcessChangesNothingThatItsSuccessorResumed": func(on *trial) { on.stopped(true) },
		"StoppedProcessOfOneHostIsGivenUpThereToo":            (*trial).stoppedHere,
		"ManyWhoWantOneKeyFromAllHostsGetOneContent":          (*trial).manyWant,
	}
}

func (on *trial) foundElsewhere() {
	a, b := on.open(on.a), on.open(on.b)
	var n fills
	first := on.wantText(a, cache.Want{Key: file("x")}, n.text("made on a"), "made on a")
	second := on.wantText(b, cache.Want{Key: file("x")}, n.text("made on b"), "made on a")
	if within(on.a, first) != within(on.b, second) {
		on.Errorf("it is at %s and at %s", first, second)
	}
	on.wantFills(&n, 1)
}

// within is a path below a cache.
func within(s side, path string) string { return strings.TrimPrefix(path, s.dir) }

// missedBefore: a host may go on to believe that something is not there.
func (on *trial) missedBefore() {
	a, b := on.open(on.a), on.open(on.b)
	var n fills
	broken := func(context.Context, string) error { return errBroken }
	for range 3 {
		if _, err := b.Get(on.Context(), cache.Want{Key: file("x")}, broken); !errors.Is(err, errBroken) && !on.Faulty {
			on.Errorf("error %v", err)
		}
	}
	on.wantText(a, cache.Want{Key: file("x")}, n.text("made on a"), "made on a")
	on.wantText(b, cache.Want{Key: file("x")}, n.text("made on b"), "made on a")
	on.wantFills(&n, 1)
}

func (on *trial) pinElsewhere() {
	a, b := on.open(on.a), on.open(on.b)
	on.blocks(a, "", "pinned", "not")
	on.trim(a, cache.TrimOptions{}, func(cache.Trimmed) bool { return true }) // a has looked at the pins
	var n fills
	path := on.wantText(b, cache.Want{Key: file("pinned"), Holder: "row-1"}, n.text("made anew"), block("pinned"))
	on.trim(a, cache.TrimOptions{All: true}, func(t cache.Trimmed) bool { return t.Removed >= 1 })
	on.trim(a, cache.TrimOptions{All: true}, func(cache.Trimmed) bool { return true })
	if got, err := os.ReadFile(path); err != nil || string(got) != block("pinned") {
		on.Errorf("what is pinned is %.10q…, %v", got, err)
	}
	on.wantText(a, cache.Want{Key: file("pinned")}, n.text("made anew"), block("pinned"))
	on.wantFills(&n, 0)
	on.unpin(a, "row-1")
	on.trim(b, cache.TrimOptions{All: true}, func(t cache.Trimmed) bool { return t.Removed >= 1 })
}

func (on *trial) pinOutlives() {
	p := on.puppet(on.orders("content"))
	p.isFilling()
	p.goOn()
	path, ok := p.ends()
	if !ok {
		on.Skip("the disk failed it")
	}
	p.die()
	b := on.open(on.b)
	on.blocks(b, "", "not")
	on.trim(b, cache.TrimOptions{All: true}, func(t cache.Trimmed) bool { return t.Removed >= 1 })
	if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
		on.Errorf("what is pinned is %q, %v", got, err)
	}
	on.unpin(b, "row-x")
	on.trim(b, cache.TrimOptions{All: true}, func(t cache.Trimmed) bool { return t.Removed >= 1 })
}

func (on *trial) trimmedElsewhere() {
	a, b := on.open(on.a), on.open(on.b)
	var n fills
	on.wantText(a, cache.Want{Key: file("x")}, n.text("made on a"), "made on a")
	on.wantText(b, cache.Want{Key: file("x")}, n.text("made on b"), "made on a")
	on.trim(a, cache.TrimOptions{All: true}, func(t cache.Trimmed) bool { return t.Removed >= 1 })
	on.eventually("it is made anew", func() error {
		path, err := b.Get(on.Context(), cache.Want{Key: file("x"), Holder: "row-1"}, n.text("made on b"))
		if err != nil {
			return err
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "made on b" {
			on.Errorf("it is %q, %v", got, err)
		}
		return nil
	})
}

// orders are those of a process on host a that fills a key.
func (on *trial) orders(text string, more ...func(*cache.Options)) puppetOrders {
	return puppetOrders{
		Dir: on.a.dir, Options: told(on.options(on.a, more...)), Key: file("x"), Holder: "row-x", Size: int64(len(text)), Text: text,
	}
}

func (on *trial) livingFill() {
	term := func(o *cache.Options) { o.Term = max(o.Term, 2*time.Second) }
	p := on.puppet(on.orders("made on a", term))
	p.isFilling()
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
	if _, err := b.Get(ctx, w, n.text("made on b")); !errors.Is(err, context.DeadlineExceeded) && !on.Faulty {
		on.Errorf("error %v, want that of the context", err)
	}
	mu.Lock()
	if !strings.Contains(named, on.a.host) {
		on.Errorf("it waited for %q", named)
	}
	mu.Unlock()
	p.goOn()
	path, ok := p.ends()
	if !ok && on.Faulty {
		return
	}
	second := on.wantText(b, w, n.text("made on b"), "made on a")
	if within(on.a, path) != within(on.b, second) {
		on.Errorf("it is at %s and at %s", path, second)
	}
	if !on.Faulty {
		on.wantFills(&n, 0)
	}
}

func (on *trial) deadHere() {
	hour := func(o *cache.Options) { o.Term = time.Hour }
	p := on.puppet(on.orders("never whole", hour))
	p.isFilling()
	p.die()
	var n fills
	on.wantText(on.open(on.a, hour), cache.Want{Key: file("x")}, n.text("whole"), "whole")
}

func (on *trial) deadElsewhere() {
	p := on.puppet(on.orders("never whole"))
	p.isFilling()
	p.die()
	var n fills
	waited := false
	on.wantText(on.open(on.b), cache.Want{Key: file("x"), Waiting: func(string) { waited = true }}, n.text("whole"), "whole")
	if !waited {
		on.Error("the lease was taken from a process of another host that may live")
	}
}

func (on *trial) killedResumed() {
	o := on.orders("half and half", func(o *cache.Options) { o.Term = time.Hour })
	o.Resume = true
	p := on.puppet(o)
	p.isFilling()
	p.die()
	var found string
	c := on.open(on.a, func(o *cache.Options) { o.Term = time.Hour })
	on.wantText(c, cache.Want{Key: file("x"), Resume: true}, func(_ context.Context, tmp string) error {
		b, _ := os.ReadFile(tmp)
		found = string(b)
		return os.WriteFile(tmp, []byte("whole"), 0o600)
	}, "whole")
	if found != "half a" && !on.Faulty {
		on.Errorf("it found %q", found)
	}
}

// stopped: a process that stands still loses its lease, and learns of it late.
func (on *trial) stopped(resume bool) {
	o := on.orders("made by the one that was stopped")
	o.Resume = resume
	p := on.puppet(o)
	p.isFilling()
	p.Signal(syscall.SIGSTOP)
	on.outlast(p, on.b, resume)
}

func (on *trial) stoppedHere() {
	p := on.puppet(on.orders("made by the one that was stopped"))
	p.isFilling()
	p.Signal(syscall.SIGSTOP)
	on.outlast(p, on.a, false)
}

// outlast fills in the place of a process that stands still, and lets it go on.
func (on *trial) outlast(p *puppet, s side, resume bool) {
	on.Helper()
	c := on.open(s)
	const text = "made by its successor, and longer than what the other made"
	var n fills
	w := cache.Want{Key: file("x"), Holder: "row-2", Resume: resume}
	path := on.wantText(c, w, func(ctx context.Context, tmp string) error {
		_ = os.Remove(tmp + ".none") // nothing that is there is relied on
		return n.text(text)(ctx, tmp)
	}, text)
	p.Signal(syscall.SIGCONT)
	p.goOn()
	if other, ok := p.ends(); ok && within(on.a, other) != within(s, path) {
		on.Errorf("the one that was stopped got %s, its successor %s", other, path)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		on.Errorf("the content is %q, %v", got, err)
	}
	on.wantText(on.open(on.a), w, n.text("made anew"), text)
	on.must("verify", func() error {
		return c.Verify(on.Context(), func(e cache.Entry, err error) {
			if err != nil && !transient(err) {
				on.Errorf("%s is damaged: %v", e.Key, err)
			}
		})
	})
	if left, _ := filepath.Glob(filepath.Join(on.root(), "leases", "*")); len(left) > 0 && !on.Faulty {
		on.Errorf("leases stand: %v", left)
	}
}

func (on *trial) manyWant() {
	var puppets []*puppet
	sides := []side{on.a, on.b}
	for i := range 6 {
		o := on.orders("content of " + string(rune('0'+i)))
		s := sides[i%2]
		o.Dir, o.Options = s.dir, told(on.options(s))
		p := on.puppet(o)
		p.goOn() // whether it is to fill or not
		puppets = append(puppets, p)
	}
	c := on.open(on.b)
	var n fills
	var path string
	for i, p := range puppets {
		got, ok := p.ends()
		if !ok {
			if !on.Faulty {
				on.Error("a process has failed")
			}
			continue
		}
		got = within(sides[i%2], got)
		if path != "" && got != path {
			on.Errorf("one got %s, another %s", path, got)
		}
		path = got
	}
	_, text := on.get(c, cache.Want{Key: file("x")}, n.text("made anew"))
	if !strings.HasPrefix(text, "content of ") {
		on.Errorf("the content is %q", text)
	}
}
