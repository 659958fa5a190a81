package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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
