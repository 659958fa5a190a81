package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/store"
)

var now = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)

var must = testenv.Must

// place is a store's place: a data directory, and a database in PostgreSQL or none.
type place struct{ dir, url string }

// onEach runs a test with an empty place of each kind.
func onEach(t *testing.T, test func(t *testing.T, at place)) {
	t.Helper()
	for kind, database := range map[string]func(testing.TB) string{
		"SQLite": func(testing.TB) string { return "" }, "PostgreSQL": testenv.Postgres,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, place{filepath.Join(t.TempDir(), "data"), database(t)})
		})
	}
}

// open opens a store with the user "me".
func open(t *testing.T, at place) *store.Store {
	t.Helper()
	s, err := store.OpenDatabase(t.Context(), at.dir, at.url)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.AddUser(t.Context(), store.User{ID: "0xme", Name: "me", Joined: store.Time{Time: now}, DiskQuota: 1000}))
	return s
}

func bundle(name string) store.Bundle {
	command := "x"
	return store.Bundle{
		UUID: codalab.NewUUID(), Type: codalab.TypeRun, OwnerID: "0xme", Command: &command, State: codalab.StateCreated,
		Metadata: codalab.Metadata{"name": name}, Created: store.Time{Time: now}, Dependencies: []codalab.Dependency{},
	}
}

func TestBundleIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		ctx := t.Context()
		must(t, s.AddWorksheets(ctx, store.DefaultPublic, store.Worksheet{UUID: "0xw", Name: "w", OwnerID: "0xme"}))
		parent, child := bundle("parent"), bundle("child")
		child.Dependencies = []codalab.Dependency{
			{ChildUUID: child.UUID, ChildPath: "z", ParentUUID: parent.UUID, ParentName: "parent", ParentState: codalab.StateCreated},
			{ChildUUID: child.UUID, ChildPath: "a", ParentUUID: "0xgone", ParentPath: "p"},
		}
		must(t, s.CreateBundle(ctx, parent, ""))
		must(t, s.CreateBundle(ctx, child, "0xw"))
		got, err := s.Bundle(ctx, child.UUID)
		must(t, err)
		if diff := cmp.Diff(child, got); diff != "" {
			t.Error(diff)
		}
		if err := s.CreateBundle(ctx, child, ""); !errors.Is(err, store.ErrExists) {
			t.Errorf("created twice: %v", err)
		}
		lost := bundle("lost")
		if err := s.CreateBundle(ctx, lost, "0xnosuch"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("shown nowhere: %v", err)
		}
		if _, err := s.Bundle(ctx, lost.UUID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("half created: %v", err)
		}
		found, err := s.Bundles(ctx, []string{child.UUID, "0xnosuch", parent.UUID})
		must(t, err)
		if len(found) != 2 || !cmp.Equal(found[child.UUID], child) {
			t.Errorf("found %v", found)
		}
		children, err := s.ChildrenOf(ctx, []string{parent.UUID})
		if err != nil || !cmp.Equal(children, []string{child.UUID}) {
			t.Errorf("children %v, %v", children, err)
		}
		items, err := s.Items(ctx, "0xw")
		if err != nil || len(items) != 1 || *items[0].BundleUUID != child.UUID {
			t.Errorf("items %v, %v", items, err)
		}
	})
}

func TestChangeIsAllOrNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		ctx := t.Context()
		b := bundle("x")
		must(t, s.CreateBundle(ctx, b, ""))
		changed, err := s.Change(ctx, b.UUID, func(b *store.Bundle) error {
			b.State, b.Worker, b.Assigned, b.KillMessage = codalab.StateStarting, store.Worker{User: "u", ID: "w"}, store.Time{Time: now}, "why"
			b.DataSize = 40
			b.Platform = &codalab.Platform{Site: "c", GPUs: []string{"NVIDIA H200", ""}, Software: []codalab.Software{{Name: "Slurm", Version: "24.11.5"}}}
			b.Cost = &codalab.Cost{StagingSeconds: 1.5, QueuedSeconds: 90, AllocatedSeconds: 3600, Attempts: 2, GPUs: &codalab.GPUUse{Busy: .25, MemoryMax: 1 << 30}}
			return nil
		})
		must(t, err)
		got, err := s.Bundle(ctx, b.UUID)
		must(t, err)
		if diff := cmp.Diff(changed, got); diff != "" {
			t.Error(diff)
		}
		oops := errors.New("oops")
		_, err = s.Change(ctx, b.UUID, func(b *store.Bundle) error {
			b.State = codalab.StateReady
			b.DataSize = 1
			return oops
		})
		if !errors.Is(err, oops) {
			t.Errorf("error %v", err)
		}
		again, err := s.Bundle(ctx, b.UUID)
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("%v, %v", cmp.Diff(got, again), err)
		}
		if u, err := s.User(ctx, "me"); err != nil || u.DiskUsed != 40 {
			t.Errorf("%+v, %v", u, err)
		}
		if _, err := s.Change(ctx, "0xnosuch", nil); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("error %v", err)
		}
		all, err := s.ChangeAll(ctx, []string{"0xnosuch", b.UUID}, func(b *store.Bundle) error {
			b.DataSize = 0
			return nil
		})
		if err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

func TestRepeatedIDsAreReadOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		b := bundle("x")
		must(t, s.CreateBundle(t.Context(), b, ""))
		repeated := []string{""}
		for range 600 { // more than one statement asks for
			repeated = append(repeated, b.UUID)
		}
		heads, err := s.Heads(t.Context(), repeated)
		if must(t, err); len(heads) != 1 || heads[0].UUID != b.UUID {
			t.Errorf("%d heads of one bundle", len(heads))
		}
	})
}

// A check-in may report thousands of runs; another writer must not wait for all of them.
func TestManyChangesHoldAnotherWriterUpForFewOfThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, place{dir: filepath.Join(t.TempDir(), "data")})
		const all = 120
		other, uuids := bundle("other"), []string{}
		must(t, s.CreateBundle(t.Context(), other, ""))
		for i := range all {
			b := bundle(strconv.Itoa(i))
			must(t, s.CreateBundle(t.Context(), b, ""))
			uuids = append(uuids, b.UUID)
		}
		var others atomic.Int64
		n := 0
		_, err := s.ChangeAll(t.Context(), uuids, func(b *store.Bundle) error {
			if n == 0 {
				go func() {
					_, err := s.Change(context.Background(), other.UUID, func(*store.Bundle) error { return nil })
					if others.Add(1); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait() // until it waits for its turn
			}
			n++
			b.DataSize = 7
			return nil
		})
		if must(t, err); n != all {
			t.Errorf("%d of %d bundles were changed", n, all)
		}
		if others.Load() != 1 {
			t.Errorf("another writer waited for %d changes", n)
		}
	})
}

func TestConcurrentChangesAreNotLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		b := bundle("x")
		must(t, s.CreateBundle(t.Context(), b, ""))
		const writers, each = 4, 20
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range each {
					_, err := s.Change(context.Background(), b.UUID, func(b *store.Bundle) error {
						b.DataSize++
						b.Metadata["data_size"] = b.DataSize
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		got, err := s.Bundle(t.Context(), b.UUID)
		if err != nil || got.DataSize != writers*each || got.Metadata.Int("data_size") != writers*each {
			t.Errorf("%d of %d, %v", got.DataSize, writers*each, err)
		}
	})
}

func TestNamesWithWildcards(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		ctx := t.Context()
		must(t, s.AddWorksheets(ctx, store.DefaultPublic, store.Worksheet{UUID: "0xw", Name: "w", OwnerID: "0xme"}))
		uuids := map[string]string{}
		for _, name := range []string{"a_b", "axb", "a_b"} {
			b := bundle(name)
			must(t, s.CreateBundle(ctx, b, "0xw"))
			must(t, s.SetPermissions(ctx, store.SharedBundle, store.Permission{Object: b.UUID, GroupUUID: store.PublicGroup}))
			uuids[name] = b.UUID
		}
		for name, want := range map[string]int{"": 3, "a_b": 2, "a%": 3, "a_%": 2, "%b": 3, "b": 0} {
			got, err := s.BundlesOnWorksheet(ctx, store.User{ID: "0xme"}, "0xw", name, 10)
			if err != nil || len(got) != want {
				t.Errorf("%q: %v, %v", name, got, err)
			}
		}
		got, err := s.BundlesOnWorksheet(ctx, store.User{ID: "0xme"}, "0xw", "", 1)
		if err != nil || got[0] != uuids["a_b"] {
			t.Errorf("newest %v, %v", got, err)
		}
		if got, err := s.BundlesByPrefix(ctx, uuids["axb"][:30], store.User{ID: "0xme"}); err != nil || !cmp.Equal(got, []string{uuids["axb"]}) {
			t.Errorf("by prefix %v, %v", got, err)
		}
		if got, err := s.BundlesByPrefix(ctx, uuids["axb"], store.User{ID: "0xother"}); err != nil || len(got) != 0 {
			t.Errorf("another's, by prefix: %v, %v", got, err)
		}
	})
}

func TestSweepRemovesWhatNoBundleNames(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		ctx := t.Context()
		b := bundle("x")
		must(t, s.CreateBundle(ctx, b, ""))
		kept, err := s.NewUpload(b.UUID)
		must(t, err)
		must(t, kept.File(strings.NewReader("kept")))
		extent, err := s.CompleteUpload(ctx, kept, b)
		must(t, err)
		if extent.Bytes != 4 {
			t.Errorf("%+v", extent)
		}
		b, err = s.Change(ctx, b.UUID, func(b *store.Bundle) error { b.Contents = kept.Name; return nil })
		must(t, err)
		must(t, kept.Close())
		lost, err := s.NewUpload(b.UUID) // a crash cut it off
		must(t, err)
		must(t, lost.File(strings.NewReader("lost")))
		must(t, lost.Close())
		n, err := s.Sweep(ctx)
		if err != nil || n != 1 {
			t.Errorf("removed %d, %v", n, err)
		}
		root, err := s.OpenContents(b)
		must(t, err)
		data, err := root.ReadFile(store.ContentsPath)
		must(t, root.Close())
		if err != nil || string(data) != "kept" {
			t.Errorf("read %q, %v", data, err)
		}
		if left, err := os.ReadDir(filepath.Join(at.dir, "bundles")); err != nil || len(left) != 1 {
			t.Errorf("left %v, %v", left, err)
		}
		if _, err := s.OpenContents(bundle("none")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("no contents: %v", err)
		}
	})
}

func TestOneServerHoldsTheData(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		unlock, err := s.Lock(t.Context())
		must(t, err)
		other, err := store.OpenDatabase(t.Context(), at.dir, at.url)
		must(t, err)
		t.Cleanup(func() { must(t, other.Close()) })
		if _, err := other.Lock(t.Context()); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), at.dir) {
			t.Errorf("locked twice: %v", err)
		}
		// Another program can add users while the lock is held.
		must(t, other.AddUser(t.Context(), store.User{ID: "0xyou", Name: "you"}))
		if err := other.AddUser(t.Context(), store.User{ID: "0xthem", Name: "you"}); !errors.Is(err, store.ErrExists) {
			t.Errorf("added twice: %v", err)
		}
		users, err := s.Users(t.Context())
		if err != nil || len(users) != 2 {
			t.Errorf("%v, %v", users, err)
		}
		must(t, unlock())
		again, err := other.Lock(t.Context())
		must(t, err)
		must(t, again())
	})
}
