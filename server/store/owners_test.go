package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A viewer learns the names of owners, and those of their groups that the viewer may know of anyway.
func TestOwnersHaveTheGroupsThatTheirViewerMayKnow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		must(t, s.AddUser(ctx, store.User{ID: store.RootID, Name: "root"}))
		for _, name := range []string{"ann", "ben", "colleague", "stranger", "site", "part", "lone"} {
			must(t, s.AddUser(ctx, store.User{ID: "0x" + name, Name: name}))
		}
		group := func(name, owner string, members ...string) string {
			g := store.Group{UUID: codalab.NewUUID(), Name: name, OwnerID: &owner, UserDefined: true}
			must(t, s.AddGroups(ctx, g))
			for _, m := range members {
				must(t, s.SetMember(ctx, store.Member{UserID: m, GroupUUID: g.UUID}))
			}
			return g.UUID
		}
		group("vision", "0xann", "0xcolleague")
		lab := group("Lab", "0xcolleague", "0xann", "0xben") // capitals come first
		group("secret", "0xann", "0xben")
		group("empty", "0xcolleague")
		must(t, s.SetScopes(ctx, "0xsite", []store.Scope{{}}))
		must(t, s.SetScopes(ctx, "0xpart", []store.Scope{{GroupUUID: lab}, {OwnerID: "0xann"}}))
		must(t, s.SetScopes(ctx, "0xlone", []store.Scope{{OwnerID: "0xann"}}))
		all := []string{"Lab", "secret", "vision"}
		for viewer, want := range map[string]struct{ ann, ben []string }{
			store.RootID:  {all, []string{"Lab", "secret"}},
			"0xsite":      {all, []string{"Lab", "secret"}},
			"0xpart":      {[]string{"Lab"}, []string{"Lab"}},
			"0xlone":      {nil, nil},
			"0xcolleague": {[]string{"Lab", "vision"}, []string{"Lab"}},
			"0xann":       {all, []string{"Lab", "secret"}},
			"0xben":       {[]string{"Lab", "secret"}, []string{"Lab", "secret"}},
			"0xstranger":  {nil, nil},
			"0xgone":      {nil, nil},
		} {
			got, err := s.Owners(ctx, viewer, []string{"0xann", "0xben", "0xann", "0xnobody"})
			must(t, err)
			if diff := cmp.Diff(map[string]store.Owner{"0xann": {"ann", want.ann}, "0xben": {"ben", want.ben}}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", viewer, diff)
			}
		}
		if got, err := s.Owners(ctx, "0xann", nil); err != nil || len(got) > 0 {
			t.Errorf("of nobody: %v, %v", got, err)
		}
	})
}
