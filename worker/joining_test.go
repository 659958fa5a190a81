package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

// joinedPack is a pack whose list has the first members of a site, and which the others may join.
type joinedPack struct {
	Pack

	disk spool.Disk
	list string
	all  []spool.Attempt
}

// packWithSlots makes a pack of the first members.
func packWithSlots(t *testing.T, w Worker, places, first int, layout spool.Layout, all []spool.Attempt) *joinedPack {
	t.Helper()
	p := &joinedPack{Pack: packOf(w, places), disk: spool.Disk{Layout: layout, Bridge: "b1"}, all: all}
	m := spool.Members{Submission: "b1.7", Attempts: p.slot(0, first).Attempts}
	must(t, p.disk.WriteMembers(m))
	p.list = m.Name()
	p.Joining = spool.SlotsOf(layout.MembersPath(p.list), m.Submission)
	return p
}

// slot is a slot with the members from number from to before number to.
func (p *joinedPack) slot(from, to int) spool.Slot {
	s := spool.Slot{Submission: "b1.7"}
	for i := from; i < to; i++ {
		s.Attempts = append(s.Attempts, spool.Member{Bundle: fmt.Sprintf("0x%x", i), Name: "1-b1"})
	}
	return s
}

// join writes a slot with these members.
func (p *joinedPack) join(t *testing.T, n, from, to int) (joined bool) {
	t.Helper()
	joined, err := p.disk.Join(t.Context(), p.list, n, p.slot(from, to))
	must(t, err)
	return joined
}

// wantBegun checks how many members, from the first on, have begun.
func wantBegun(t *testing.T, all []spool.Attempt, want int) {
	t.Helper()
	for i, a := range all {
		if _, err := a.ReadStarted(); (err == nil) != (i < want) {
			t.Errorf("the start of member %d: %v", i, err)
		}
	}
}

func TestMembersJoinWhileOneRuns(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	layout, all := members(t, 5, nil)
	var mu sync.Mutex
	var ended []string
	w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
		length := time.Second
		if bundleOf(c) == "0x0" {
			length = time.Minute
		}
		time.Sleep(length)
		mu.Lock()
		ended = append(ended, bundleOf(c))
		mu.Unlock()
		return container.Exit{}, nil
	})
	p := packWithSlots(t, w, 2, 2, layout, all)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var run sync.WaitGroup
		run.Go(func() { must(t, p.Run(t.Context(), all[:2])) })
		time.Sleep(20 * time.Second)
		if !p.join(t, 1, 2, 4) || !p.join(t, 2, 4, 5) {
			t.Error("the list is closed")
		}
		time.Sleep(slotPause)
		synctest.Wait()
		wantBegun(t, all, 3)
		run.Wait()
		if took := time.Since(began).Round(10 * time.Millisecond); took != time.Minute {
			t.Errorf("the pack took %v", took)
		}
	})
	if want := []string{"0x1", "0x2", "0x3", "0x4", "0x0"}; !slices.Equal(ended, want) {
		t.Errorf("ended: %v, want %v", ended, want)
	}
	if p.join(t, 3, 2, 3) {
		t.Error("a member has joined a pack that has ended")
	}
}

// An allocation is held for no member that may come. Members of a slot whose hint is lost are found when the list is closed.
func TestPackClosesItsListOnceNothingRuns(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for places, want := range map[int]time.Duration{1: 3 * time.Second, 3: 2 * time.Second} {
		layout, all := members(t, 4, nil)
		w := newWorker(t, func(context.Context, container.Container) (container.Exit, error) {
			time.Sleep(time.Second)
			return container.Exit{}, nil
		})
		p := packWithSlots(t, w, places, 1, layout, all)
		if !p.join(t, 1, 1, 3) {
			t.Error("the list is closed")
		}
		hints, err := filepath.Glob(filepath.Join(layout.Arrays(), "*.slots"))
		must(t, err)
		must(t, os.Remove(hints[0]))
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			must(t, p.Run(t.Context(), all[:1]))
			if took := time.Since(began).Round(10 * time.Millisecond); took != want {
				t.Errorf("%d places: the pack took %v, want %v", places, took, want)
			}
		})
		wantBegun(t, all, 3)
		if p.join(t, 2, 3, 4) {
			t.Errorf("%d places: a member has joined a pack that has ended", places)
		}
	}
}

func TestTermClosesTheListAtOnce(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	layout, all := members(t, 4, nil)
	p := packWithSlots(t, newWorker(t, func(ctx context.Context, _ container.Container) (container.Exit, error) {
		<-ctx.Done()
		time.Sleep(time.Minute) // the command ends late
		return container.Exit{Code: 143, Signal: 15}, nil
	}), 2, 1, layout, all)
	synctest.Test(t, func(t *testing.T) {
		ctx, term := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { must(t, p.Run(ctx, all[:1])) })
		synctest.Wait()
		if !p.join(t, 1, 1, 3) { // the worker has not seen it when TERM comes
			t.Error("the list is closed")
		}
		term()
		synctest.Wait()
		if p.join(t, 2, 3, 4) {
			t.Error("a member has joined after TERM")
		}
		run.Wait()
	})
	wantBegun(t, all, 1)
}

func TestSickNodeClosesTheListAndBeginsNoFurtherMember(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for name, c := range map[string]struct {
		spoil   func(all []spool.Attempt)
		failure error
		want    error
		begun   int
	}{
		"the disk takes no start": {func(all []spool.Attempt) { must(t, os.MkdirAll(filepath.Join(all[1].Dir, "started", "x"), 0o700)) }, nil, ErrNotBegun, 1},
		"no container begins":     {func([]spool.Attempt) {}, &container.HostError{Err: errors.New("no namespaces")}, ErrSickNode, 2},
		"one may have begun":      {func([]spool.Attempt) {}, &container.HostError{Err: errors.New("no answer"), Doubtful: true}, nil, 4},
	} {
		layout, all := members(t, 4, nil)
		c.spoil(all)
		w := newWorker(t, func(context.Context, container.Container) (container.Exit, error) { return container.Exit{}, c.failure })
		p := packWithSlots(t, w, 1, 2, layout, all)
		if !p.join(t, 1, 2, 4) {
			t.Error("the list is closed")
		}
		synctest.Test(t, func(t *testing.T) {
			if err := p.Run(t.Context(), all[:2]); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		})
		if name != "the disk takes no start" {
			wantBegun(t, all, c.begun)
		} else if _, err := all[2].ReadStarted(); err == nil {
			t.Errorf("%s: a further member has begun", name)
		}
		if p.join(t, 2, 2, 3) {
			t.Errorf("%s: a member has joined", name)
		}
	}
}

// The bridge sees from the end of the job that what joins then has no turn.
func TestDiskOnWhichNoListCanBeClosedHoldsNoAllocation(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	layout, all := members(t, 1, nil)
	p := packWithSlots(t, newWorker(t, succeeds), 2, 1, layout, all)
	must(t, os.MkdirAll(filepath.Join(layout.Arrays(), p.list+".1.json", "x"), 0o700))
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		must(t, p.Run(t.Context(), all))
		if took := time.Since(began).Round(time.Second); took != beginTimeout {
			t.Errorf("the pack took %v", took)
		}
	})
	if e := exitOf(t, all[0]); e.Cause != spool.CauseSucceeded {
		t.Errorf("%+v", e)
	}
}

// Each member that has joined runs once, and each that has not runs never, however the worker and the bridge meet.
func TestNoMemberIsLostBetweenBridgeAndWorker(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	const first, all = 3, 40
	layout, attempts := members(t, all, nil)
	var mu sync.Mutex
	ran := map[string]int{}
	w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
		mu.Lock()
		defer mu.Unlock()
		ran[bundleOf(c)]++
		return container.Exit{}, nil
	})
	p := packWithSlots(t, w, 4, first, layout, attempts)
	joined := first
	var both sync.WaitGroup
	both.Go(func() { must(t, p.Run(t.Context(), attempts[:first])) })
	both.Go(func() {
		for joined < all && p.join(t, joined-first+1, joined, joined+1) {
			joined++
		}
	})
	both.Wait()
	wantBegun(t, attempts, joined)
	for bundle, times := range ran {
		if times != 1 {
			t.Errorf("%s ran %d times", bundle, times)
		}
	}
	if len(ran) != joined {
		t.Errorf("%d members ran, and %d have joined", len(ran), joined-first)
	}
	if out, err := os.ReadDir(layout.Arrays()); err != nil || slices.ContainsFunc(out, func(e os.DirEntry) bool { return strings.Contains(e.Name(), ".tmp-") }) {
		t.Errorf("left: %v, %v", out, err)
	}
}
