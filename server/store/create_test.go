package store_test

import (
	"errors"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// news are n new bundles with dependencies. Those of another test with the same n have the same uuids.
func news(n int) []store.Bundle {
	var list []store.Bundle
	for i := range n {
		b := bundle("run-" + strconv.Itoa(i))
		b.UUID = "0x" + strconv.Itoa(1e9+i)
		b.IsAnonymous = i%2 == 0
		b.Metadata["tags"] = []any{"seed=" + strconv.Itoa(i), "sweep"}
		for d := range i % 4 {
			b.Dependencies = append(b.Dependencies, codalab.Dependency{
				ChildUUID: b.UUID, ChildPath: "in" + strconv.Itoa(9-d), ParentUUID: "0xgone", ParentPath: strconv.Itoa(i),
			})
		}
		list = append(list, b)
	}
	return list
}

// made is what a creation of bundles has left in a store.
type made struct {
	Bundles     map[string]store.Bundle
	Items       []store.Item
	Permissions map[string][]store.Permission
	Histories   map[string][]codalab.BundleEvent
	Used        [2]int64
	Public      int
	Noted       []store.Event
	More        int
}

// create creates bundles on a worksheet that two groups may read, in one call or with a call for each.
func create(t *testing.T, at place, list []store.Bundle, where store.Place, together bool) made {
	t.Helper()
	s := open(t, at)
	record := &store.Record{UserID: "0xme", UserName: "me", At: now}
	ctx := store.WithRecord(t.Context(), record)
	must(t, s.AddWorksheets(t.Context(), store.DefaultPublic, store.Worksheet{UUID: "0xw", Name: "w", OwnerID: "0xme"}))
	owner := "0xme"
	must(t, s.AddGroups(t.Context(), store.Group{UUID: "0xlab", Name: "lab", OwnerID: &owner}))
	must(t, s.SetPermissions(t.Context(), store.SharedWorksheet, store.Permission{Object: "0xw", GroupUUID: "0xlab", Permission: store.PermissionAll}))
	parent := "0xparent"
	must(t, s.AddItems(t.Context(), "0xw", []store.Item{
		{Type: codalab.ItemMarkup, Value: "first"}, {Type: codalab.ItemBundle, BundleUUID: &parent}, {Type: codalab.ItemMarkup, Value: "last"},
	}, nil, nil, store.Time{Time: now}))
	where.Worksheet = "0xw"
	if together {
		got, err := s.CreateBundles(ctx, list, where)
		must(t, err)
		if diff := cmp.Diff(list, got); diff != "" {
			t.Error(diff)
		}
	} else {
		for _, b := range list {
			_, err := s.CreateBundles(ctx, []store.Bundle{b}, where)
			must(t, err)
		}
	}
	return read(t, s, list, record)
}

func read(t *testing.T, s *store.Store, list []store.Bundle, record *store.Record) made {
	t.Helper()
	var m made
	var uuids []string
	m.Histories = map[string][]codalab.BundleEvent{}
	for _, b := range list {
		uuids = append(uuids, b.UUID)
		var err error
		m.Histories[b.UUID], err = s.History(t.Context(), b.UUID)
		must(t, err)
	}
	var err error
	m.Bundles, err = s.Bundles(t.Context(), uuids)
	must(t, err)
	m.Items, err = s.Items(t.Context(), "0xw")
	must(t, err)
	m.Permissions, err = s.Permissions(t.Context(), store.SharedBundle, uuids)
	must(t, err)
	u, err := s.User(t.Context(), "0xme")
	must(t, err)
	m.Used = [2]int64{u.DiskUsed, u.EntriesUsed}
	anybody, err := s.SearchBundles(t.Context(), store.User{ID: "0xother"}, keywords.Query{Limit: 1000})
	must(t, err)
	m.Public = len(anybody)
	m.Noted, m.More = record.Events()
	return m
}

func TestBundlesThatAreCreatedTogetherAreAsThoseCreatedOneByOne(t *testing.T) {
	t.Parallel()
	second := int64(2)
	for name, where := range map[string]store.Place{
		"at the end": {}, "with blank lines": {BlankBefore: true}, "after a key": {After: &second},
		"after a key, with blank lines": {After: &second, BlankBefore: true}, "behind a bundle": {Behind: "0xparent"}, "behind none": {Behind: "0xnone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, at place) {
				const n = 12
				other := place{filepath.Join(t.TempDir(), "other"), ""}
				got, want := create(t, at, news(n), where, true), create(t, other, news(n), where, false)
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(store.Item{}, "ID"), cmpopts.IgnoreUnexported(store.Event{})); diff != "" {
					t.Error(diff)
				}
				if len(got.Bundles) != n || got.Public != n || len(got.Permissions) != n || len(got.Noted) != n || len(got.Items) < n+3 || got.Used[1] != n {
					t.Errorf("%d bundles, %d public, %d shared, %d noted, %d items, %d entries", len(got.Bundles), got.Public, len(got.Permissions), len(got.Noted), len(got.Items), got.Used[1])
				}
			})
		})
	}
}

func TestThousandBundlesAreCreatedAllOrNone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		ctx := t.Context()
		must(t, s.AddWorksheets(ctx, store.DefaultPublic, store.Worksheet{UUID: "0xw", Name: "w", OwnerID: "0xme"}))
		there, deleted := bundle("there"), bundle("deleted")
		must(t, s.CreateBundle(ctx, there, ""))
		must(t, s.CreateBundle(ctx, deleted, ""))
		must(t, s.DeleteBundles(ctx, []string{deleted.UUID}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
		for _, taken := range []string{there.UUID, deleted.UUID, news(1)[0].UUID} {
			list := news(1000)
			list[997].UUID, list[999].UUID = taken, there.UUID
			created, err := s.CreateBundles(ctx, list, store.Place{Worksheet: "0xw"})
			if why, ok := errors.AsType[*store.TakenError](err); !ok || why.UUID != taken || len(created) > 0 {
				t.Errorf("%d are created with the uuid %s: %v", len(created), taken, err)
			}
		}
		items, err := s.Items(ctx, "0xw")
		must(t, err)
		if u, err := s.User(ctx, "0xme"); err != nil || len(items) != 0 || u.EntriesUsed != 1 {
			t.Errorf("%d items and %d entries are left, %v", len(items), u.EntriesUsed, err)
		}
		if created, err := s.CreateBundles(ctx, news(2100), store.Place{Worksheet: "0xw"}); err != nil || len(created) != 2100 {
			t.Errorf("%d bundles, %v", len(created), err)
		}
	})
}

func TestThousandBundlesAreCreatedWithFewStatements(t *testing.T) {
	t.Parallel()
	p := testenv.PostgresProxy(t)
	s := open(t, place{filepath.Join(t.TempDir(), "data"), p.URL})
	ctx := store.WithRecord(t.Context(), &store.Record{UserID: "0xme", UserName: "me", At: now})
	must(t, s.AddWorksheets(ctx, store.DefaultPublic, store.Worksheet{UUID: "0xw", Name: "w", OwnerID: "0xme"}))
	must(t, s.AddItems(ctx, "0xw", []store.Item{{Type: codalab.ItemMarkup, Value: "first"}, {Type: codalab.ItemMarkup, Value: "last"}}, nil, nil, store.Time{Time: now}))
	first := int64(0)
	for name, where := range map[string]store.Place{"at the end": {}, "in front of other items": {After: &first}} {
		list := news(1000)
		for i := range list {
			list[i].UUID = bundle("").UUID
			list[i].Dependencies = nil
		}
		where.Worksheet = "0xw"
		before := p.Sent()
		_, err := s.CreateBundles(ctx, list, where)
		must(t, err)
		if sent := p.Sent() - before; sent > 200 {
			t.Errorf("%s: %d pieces were sent to the database for 1,000 bundles", name, sent)
		}
	}
}
