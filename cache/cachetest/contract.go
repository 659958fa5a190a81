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
)

// oneHost are the tests that need one host, by the promise that each guards.
func oneHost() map[string]func(*trial) {
	return map[string]func(*trial){
		"SecondRequestFindsWhatTheFirstMade":            (*trial).secondRequest,
		"KeysThatDifferHaveContentOfTheirOwn":           (*trial).keysDiffer,
		"DirectoryIsKeptAsItIs":                         (*trial).directoryKept,
		"FailureIsReturnedAsItIsAndIsNotRemembered":     (*trial).failure,
		"CallersAtOnceShareOneFill":                     (*trial).callersAtOnce,
		"CallerWhoseContextEndsLeavesTheOthersAlone":    (*trial).callerLeaves,
		"FailedFillIsResumedByOneThatWants":             (*trial).resumed,
		"WhatAFillLeavesBesideIsRemoved":                (*trial).beside,
		"NothingIsReadableForOthers":                    (*trial).privateModes,
		"GroupSharesWhatIsNotPrivate":                   (*trial).groupModes,
		"EntriesAndUsageTellWhatIsThere":                (*trial).listed,
		"PinsAreListedUntilTheyAreDropped":              (*trial).pinsListed,
		"PinsOfHoldersThatAreOverAreDroppedAndNoOthers": (*trial).pinsOver,
		"TrimTakesTheLeastRecentlyUsedDownToTheLow":     (*trial).trimOrder,
		"TrimTakesNothingThatIsPinned":                  (*trial).trimPinned,
		"TrimThatIsDryChangesNothing":                   (*trial).trimDry,
		"QuotaIsMadeRoomFor":                            (*trial).quotaRoom,
		"OneOwnersQuotaIsNotAnothers":                   (*trial).quotaOwner,
		"QuotaFullOfPinsIsAnError":                      (*trial).quotaFull,
		"DamageIsFoundAndMadeAnew":                      (*trial).damage,
		"LeftoversAreSweptAndNothingElse":               (*trial).leftovers,
	}
}

// takesSeconds leaves a test that waits for leases or for room out under -short.
func (on *trial) takesSeconds() {
	on.Helper()
	if testing.Short() {
		on.Skip("left out by -short: it takes seconds")
	}
}

// fills counts what it makes.
type fills struct{ atomic.Int64 }

// text makes a file.
func (n *fills) text(text string) cache.Fill {
	return func(_ context.Context, tmp string) error {
		n.Add(1)
		return os.WriteFile(tmp, []byte(text), 0o600)
	}
}

// tree makes a directory.
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

// open opens the cache on a side, with the site's options and these.
func (on *trial) open(s side, more ...func(*cache.Options)) *cache.Cache {
	on.Helper()
	var c *cache.Cache
	on.must("open", func() (err error) {
		c, err = cache.Open(s.dir, on.options(s, more...))
		return err
	})
	return c
}

func (on *trial) options(s side, more ...func(*cache.Options)) cache.Options {
	o := on.Options
	o.Host = s.host
	for _, m := range more {
		m(&o)
	}
	return o
}

// must ends the test when something fails that should not. On a faulty file
// system it is tried again.
func (on *trial) must(what string, try func() error) {
	on.Helper()
	err := try()
	for range 30 {
		if err == nil || !on.Faulty || !transient(err) {
			break
		}
		err = try()
	}
	if err != nil {
		on.Fatalf("%s: %v", what, err)
	}
}

// get gets a key whose content is a file, and returns its path and text.
func (on *trial) get(c *cache.Cache, w cache.Want, fill cache.Fill) (path, text string) {
	on.Helper()
	on.must("get "+w.Key.String(), func() (err error) {
		if path, err = c.Get(on.Context(), w, fill); err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		text = string(b)
		return err
	})
	return path, text
}

// wantText gets a key, and compares its content.
func (on *trial) wantText(c *cache.Cache, w cache.Want, fill cache.Fill, want string) (path string) {
	on.Helper()
	path, text := on.get(c, w, fill)
	if text != want {
		on.Errorf("%s is %q, want %q", w.Key, text, want)
	}
	return path
}

// wantFills compares how often something was made. Faults may have it made more
// often.
func (on *trial) wantFills(n *fills, want int64) {
	on.Helper()
	if got := n.Load(); got != want && (!on.Faulty || got < want) {
		on.Errorf("%d fills, want %d", got, want)
	}
}

// trim trims until what it did is what is wanted: what is out of use has to
// settle first.
func (on *trial) trim(c *cache.Cache, o cache.TrimOptions, enough func(cache.Trimmed) bool) (all cache.Trimmed) {
	on.Helper()
	on.eventually("trim", func() error {
		t, err := c.Trim(on.Context(), o)
		if err != nil {
			return err
		}
		all.Retired, all.Removed, all.Freed = append(all.Retired, t.Retired...), all.Removed+t.Removed, all.Freed+t.Freed
		all.Dropped, all.Swept = append(all.Dropped, t.Dropped...), append(all.Swept, t.Swept...)
		all.Usage = t.Usage
		if !enough(all) {
			return fmt.Errorf("not yet: %+v", all)
		}
		return nil
	})
	return all
}

// eventually repeats what may need time to come true.
func (on *trial) eventually(what string, try func() error) {
	on.Helper()
	limit := 20*time.Second + 4*(on.Options.Term+max(on.Options.Settle, 0))
	ctx, cancel := context.WithTimeout(on.Context(), limit)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			on.Fatalf("%s, within %v: %v", what, limit, err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// keys are the IDs of the entries that a host has now, in order.
func (on *trial) keys(c *cache.Cache) (ids []string) {
	on.Helper()
	on.must("list", func() error {
		list, err := c.Entries(on.Context())
		ids = nil
		for _, e := range list {
			ids = append(ids, e.ID)
		}
		return err
	})
	slices.Sort(ids)
	return ids
}

func (on *trial) wantKeys(c *cache.Cache, want ...string) {
	on.Helper()
	if got := on.keys(c); !slices.Equal(got, want) {
		on.Errorf("entries %q, want %q", got, want)
	}
}

// wantOnDisk compares the files that the file server has of contents with this
// text in them.
func (on *trial) wantOnDisk(text string, want int) {
	on.Helper()
	root := filepath.Join(on.server(), filepath.Base(on.a.dir))
	n := 0
	for _, name := range names(root) {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err == nil && strings.Contains(string(b), text) && !strings.HasSuffix(name, ".json") {
			n++
		}
	}
	if n != want {
		on.Errorf("%d files with %q, want %d, of %v", n, text, want, names(root))
	}
}
