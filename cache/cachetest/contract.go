package cachetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// promises returns the tests of the contract, by the promise that each guards.
func promises() map[string]func(*trial) {
	return map[string]func(*trial){
		"KeysThatDifferHaveContentOfTheirOwn":                 (*trial).keysDiffer,
		"DirectoryIsKeptAsItIs":                               (*trial).directoryKept,
		"FailureIsReturnedAsItIsAndIsNotRemembered":           (*trial).failure,
		"CallersAtOnceShareOneFill":                           (*trial).callersAtOnce,
		"FailedFillIsResumedByOneThatWants":                   (*trial).resumed,
		"WhatAFillLeavesBesideIsRemoved":                      (*trial).beside,
		"NothingIsReadableForOthers":                          (*trial).privateModes,
		"EntriesAndUsageTellWhatIsThere":                      (*trial).listed,
		"PinsAreListedUntilTheyAreDropped":                    (*trial).pinsListed,
		"PinsOfHoldersThatAreOverAreDroppedAndNoOthers":       (*trial).pinsOver,
		"PinOnOneHostSavesFromTrimOnTheOther":                 (*trial).pinElsewhere,
		"TrimTakesTheLeastRecentlyUsedDownToTheLow":           (*trial).trimOrder,
		"TrimThatIsDryChangesNothing":                         (*trial).trimDry,
		"QuotaIsMadeRoomFor":                                  (*trial).quotaRoom,
		"OneOwnersQuotaIsNotAnothers":                         (*trial).quotaOwner,
		"QuotaFullOfPinsIsAnError":                            (*trial).quotaFull,
		"DamagedOnOneHostIsMadeAnewByTheOther":                (*trial).damage,
		"LeftoversAreSweptAndNothingElse":                     (*trial).leftovers,
		"FilledOnOneHostIsFoundOnTheOther":                    (*trial).foundElsewhere,
		"OneThatMissedFindsWhatTheOtherMade":                  (*trial).missedBefore,
		"TrimmedOnOneHostIsMadeAnewByTheOther":                (*trial).trimmedElsewhere,
		"LivingFillIsWaitedForAndNamed":                       (*trial).livingFill,
		"LeaseOfADeadProcessIsTakenOverAtOnceOnItsHost":       (*trial).deadHere,
		"LeaseOfADeadProcessIsTakenOverAfterItsTermElsewhere": (*trial).deadElsewhere,
		"StoppedProcessChangesNothingThatItsSuccessorResumed": func(on *trial) { on.stopped(on.b) },
		"StoppedProcessOfOneHostIsGivenUpThereToo":            func(on *trial) { on.stopped(on.a) },
	}
}

// trial is one test on one site. Its cache is empty at first.
type trial struct {
	*testing.T
	Site
	a, b side
}

// side is one host's view of the cache.
type side struct{ dir, host string }

func newTrial(t *testing.T, s Site) *trial {
	t.Helper()
	name := strings.NewReplacer("/", "-", "#", "-").Replace(t.Name())
	at := func(i int) side { return side{dir: filepath.Join(s.Hosts[i], name), host: hostName(i)} }
	return &trial{T: t, Site: s, a: at(0), b: at(1)}
}

func hostName(i int) string { return fmt.Sprint("host", i+1) }

// root returns the cache's directory on the file server.
func (on *trial) root() string { return filepath.Join(on.server(), filepath.Base(on.a.dir)) }

// takesSeconds skips a test under -short if it waits for leases or for room.
func (on *trial) takesSeconds() {
	on.Helper()
	if testing.Short() {
		on.Skip("left out by -short: it takes seconds")
	}
}

// fills makes contents and counts them.
type fills struct{ atomic.Int64 }

// text returns a Fill that makes a file.
func (n *fills) text(text string) cache.Fill {
	return func(_ context.Context, tmp string) error {
		n.Add(1)
		return os.WriteFile(tmp, []byte(text), 0o600)
	}
}

// tree returns a Fill that makes a directory.
func (n *fills) tree(files map[string]string) cache.Fill {
	return func(_ context.Context, tmp string) error {
		n.Add(1)
		for name, text := range files {
			path := filepath.Join(tmp, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				return err
			}
		}
		return nil
	}
}

func file(id string) cache.Key { return cache.Key{Kind: "file", ID: id} }

func (on *trial) must(err error) {
	on.Helper()
	if err != nil {
		on.Fatal(err)
	}
}

func (on *trial) options(s side, more ...func(*cache.Options)) cache.Options {
	o := on.Options
	o.Host = s.host
	for _, m := range more {
		m(&o)
	}
	return o
}

// open opens the cache on a side, with the site's options and these.
func (on *trial) open(s side, more ...func(*cache.Options)) *cache.Cache {
	on.Helper()
	c, err := cache.Open(s.dir, on.options(s, more...))
	on.must(err)
	return c
}

func (on *trial) get(c *cache.Cache, w cache.Want, fill cache.Fill) (path string) {
	on.Helper()
	path, err := c.Get(on.Context(), w, fill)
	on.must(err)
	return path
}

// wantText gets a key, and compares its content, a file, with want.
func (on *trial) wantText(c *cache.Cache, w cache.Want, fill cache.Fill, want string) (path string) {
	on.Helper()
	path = on.get(c, w, fill)
	on.reads(path, want)
	return path
}

func (on *trial) reads(path, want string) {
	on.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		on.Errorf("%s holds %.20q, %v; want %.20q", path, got, err, want)
	}
}

func (on *trial) wantFills(n *fills, want int64) {
	on.Helper()
	if got := n.Load(); got != want {
		on.Errorf("%d fills, want %d", got, want)
	}
}

func (on *trial) unpin(c *cache.Cache, h cache.Holder) {
	on.Helper()
	on.must(c.Unpin(on.Context(), h))
}

// trim trims until so many contents are removed, because a retired content must settle first.
func (on *trial) trim(c *cache.Cache, all bool, removed int) (retired []string) {
	on.Helper()
	on.eventually(fmt.Sprintf("%d contents are removed", removed), func() error {
		t, err := c.Trim(on.Context(), cache.TrimOptions{All: all})
		for _, e := range t.Retired {
			retired = append(retired, e.ID)
		}
		if removed -= t.Removed; err == nil && removed > 0 {
			err = fmt.Errorf("not yet: %+v", t)
		}
		return err
	})
	return retired
}

// eventually repeats try until it succeeds, and fails the test if that takes too long.
func (on *trial) eventually(what string, try func() error) {
	on.Helper()
	if err := within(on.Context(), testenv.WaitLimit+4*(on.Options.Term+max(on.Options.Settle, 0)), func(context.Context) error { return try() }); err != nil {
		on.Fatalf("%s: %v", what, err)
	}
}

// within repeats try until it succeeds or the time is up.
func within(ctx context.Context, limit time.Duration, try func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		last := err
		if err = try(ctx); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("not within %v: %w", limit, errors.Join(last, err))
		}
		_ = pause.For(ctx, 20*time.Millisecond)
	}
}

func (on *trial) wantKeys(c *cache.Cache, want ...string) {
	on.Helper()
	list, err := c.Entries(on.Context())
	on.must(err)
	var got []string
	for _, e := range list {
		got = append(got, e.ID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		on.Errorf("entries %q, want %q", got, want)
	}
}

// wantPins compares the pins, each as "ID holder".
func (on *trial) wantPins(c *cache.Cache, want ...string) {
	on.Helper()
	list, err := c.Entries(on.Context())
	on.must(err)
	ids := map[string]string{}
	for _, e := range list {
		ids[e.Hash] = e.ID
	}
	pins, err := c.Pins()
	on.must(err)
	var got []string
	for _, p := range pins {
		got = append(got, ids[p.Hash]+" "+string(p.Holder))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		on.Errorf("pins %q, want %q", got, want)
	}
}
