package store_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// No quota counts groups and worksheets, so their number is bounded.
func TestGroupsAndWorksheetsOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx, owner := open(t, at), t.Context(), "0xme"
		raw := openRaw(t, at)
		fill := map[string]string{
			`INSERT INTO groups (uuid, name, owner_id)`:                        `SELECT 'g' || n, 'g' || n, '0xme' FROM numbers`,
			`INSERT INTO worksheets (uuid, name, owner_id, created, modified)`: `SELECT 'w' || n, 'w' || n, '0xme', 1, 1 FROM numbers`,
		}
		for into, rows := range fill {
			most := store.MostGroups
			if strings.Contains(into, "worksheets") {
				most = store.MostWorksheets
			}
			numbers := fmt.Sprintf(` WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) `, most-1)
			_, err := raw.ExecContext(ctx, into+numbers+rows)
			must(t, err)
		}
		group := func(name string) store.Group { return store.Group{UUID: name, Name: name, OwnerID: &owner} }
		sheet := func(name string) store.Worksheet { return store.Worksheet{UUID: name, Name: name, OwnerID: owner} }
		must(t, s.AddGroups(ctx, group("last")))
		if err := s.AddGroups(ctx, group("more")); !errors.Is(err, store.ErrTooMany) {
			t.Errorf("one more group: %v", err)
		}
		if err := s.AddWorksheets(ctx, store.DefaultNone, sheet("x1"), sheet("x2")); !errors.Is(err, store.ErrTooMany) {
			t.Errorf("more worksheets: %v", err)
		}
	})
}

func TestItemsOfAWorksheetAreBounded(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		raw, later := openRaw(t, at), store.Time{Time: time.Unix(1e9, 0)} // whose microseconds are above the ids below
		sheet := store.Worksheet{UUID: "w", Name: "w", OwnerID: "0xme"}
		must(t, s.AddWorksheets(ctx, store.DefaultNone, sheet))
		fill := func(first, n int) {
			_, err := raw.ExecContext(ctx, fmt.Sprintf(`INSERT INTO worksheet_items (id, worksheet_uuid, type, value, sort_key)
				WITH RECURSIVE numbers (n) AS (SELECT %d UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) SELECT n, 'w', 'markup', '', n FROM numbers`,
				first, first+n-1))
			must(t, err)
		}
		texts := func(n int) []store.Item { return slices.Repeat([]store.Item{{Type: codalab.ItemMarkup}}, n) }
		add := func(n int, after *int64, replaced ...int64) error {
			return s.AddItems(ctx, "w", texts(n), after, replaced, later)
		}
		refused := func(what string, err error) {
			if !errors.Is(err, store.ErrFullWorksheet) {
				t.Errorf("%s: %v", what, err)
			}
		}
		fill(1, store.MostItems-2)
		refused("three more", add(3, nil))
		must(t, add(1, nil))
		for _, after := range []int64{math.MinInt64 + 9, math.MaxInt64 - 9} { // keys that are far from each other hide none
			must(t, add(1, &after))
			refused("one more", add(1, nil, 0))
			refused("one more", add(1, &after))
			var last int64
			must(t, raw.QueryRowContext(ctx, `SELECT max(id) FROM worksheet_items`).Scan(&last))
			must(t, add(0, nil, last))
		}
		must(t, add(1, nil))
		refused("a bundle", s.CreateBundle(ctx, store.Bundle{UUID: "0x1", Type: codalab.TypeDataset, OwnerID: "0xme", Metadata: codalab.Metadata{}}, "w"))
		refused("two for one", add(2, nil, 1))
		must(t, add(1, nil, 1))

		fill(store.MostItems+100, 100) // as an import from a server without the bound
		must(t, add(1, nil, 2, 3))
		must(t, s.ReplaceItems(ctx, "w", texts(1), later))
		must(t, add(1, nil))
	})
}

// Of two edits of what both have read, the second is refused; one that changes nothing is none.
func TestEditOfOtherItemsThanThoseReadIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		must(t, s.AddWorksheets(ctx, store.DefaultNone, store.Worksheet{UUID: "w", Name: "w", OwnerID: "0xme"}))
		text := func(value string) []store.Item { return []store.Item{{Type: codalab.ItemMarkup, Value: value}} }
		read, now := store.ItemsTag(nil), store.Time{Time: time.Unix(1e9, 0)}
		must(t, s.EditItems(ctx, "w", read, text("a"), now))
		must(t, s.EditItems(ctx, "w", read, text("a"), now)) // is there already
		if err := s.EditItems(ctx, "w", read, text("b"), now); !errors.Is(err, store.ErrChanged) {
			t.Errorf("the second edit: %v", err)
		}
		must(t, s.EditItems(ctx, "w", store.ItemsTag(text("a")), text("b"), now))
		if items, err := s.Items(ctx, "w"); err != nil || len(items) != 1 || items[0].Value != "b" {
			t.Errorf("the items are %v, %v", items, err)
		}
		other := "a"
		if one, two := store.ItemsTag(text("a")), store.ItemsTag([]store.Item{{Type: codalab.ItemMarkup, BundleUUID: &other}}); one == two {
			t.Error("different items have one tag")
		}
	})
}
