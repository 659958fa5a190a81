package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// rename changes a user's own name.
func (s *site) rename(user, name string) answer {
	s.t.Helper()
	return s.call(user, "PATCH", "/user", map[string]any{"data": map[string]any{"type": "users", "attributes": map[string]string{"user_name": name}}})
}

func (s *site) named(user, kind, name string) answer {
	s.t.Helper()
	return s.call(user, "POST", "/"+kind, object(kind, map[string]string{"name": name}))
}

func TestNoNameDiffersFromAnotherByCaseAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.named("alice", "worksheets", "Results").ok()
	s.named("alice", "groups", "Lab").ok()
	mine := s.named("bob", "worksheets", "other").ok().text("data", 0, "id")

	s.named("bob", "worksheets", "results").says(http.StatusBadRequest, "Worksheet with name results already exists")
	s.patch("bob", "worksheets", mine, map[string]any{"name": "RESULTS"}).says(http.StatusBadRequest, "already exists")
	s.named("bob", "groups", "LAB").says(http.StatusConflict, "Group with name LAB already exists")
	s.named("bob", "groups", "Public").is(http.StatusBadRequest)
	s.rename("bob", "ALICE").says(http.StatusBadRequest, "User name ALICE is already taken.")
	s.call("root", "PATCH", "/users", edit("users", bobsID, map[string]any{"user_name": "Alice"})).says(http.StatusBadRequest, "already taken")
	if err := s.store.AddUser(t.Context(), store.User{ID: "0x1", Name: "Alice"}); err == nil {
		t.Error("the operator adds Alice beside alice")
	}
	s.rename("bob", "Bob").ok() // the own name
	s.patch("bob", "worksheets", mine, map[string]any{"name": "Other"}).ok()
}

func TestNobodyTakesAnothersHomeWorksheetsName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, name := range []string{"home-alice", "Home-alice", "HOME-ALICE", "home-nobody"} {
		s.named("bob", "worksheets", name).says(http.StatusBadRequest, "potentially the home worksheet of another user")
	}
	mine := s.named("bob", "worksheets", "other").ok().text("data", 0, "id")
	s.patch("bob", "worksheets", mine, map[string]any{"name": "Home-alice"}).is(http.StatusBadRequest)
}

// The names of imported users may differ by case alone. Each of them has a home worksheet.
func TestHomesOfUsersWhoseNamesDifferByCaseAloneAreTwo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home := store.Worksheet{UUID: codalab.NewUUID(), Name: "home-Alice", OwnerID: bobsID}
	must(t, s.store.AddHome(t.Context(), home, store.DefaultNone))
	if s.home("alice") == home.UUID {
		t.Error("alice has another one's home")
	}
	home.UUID = codalab.NewUUID()
	if err := s.store.AddHome(t.Context(), home, store.DefaultNone); !errors.Is(err, store.ErrExists) {
		t.Errorf("%v", err)
	}
}

// Who took a name that somebody had before would get what is meant for that user.
func TestFormerNameIsTakenByNobodyElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addUser("carol")
	home := s.home("alice")
	s.rename("alice", "annie").ok()
	for _, name := range []string{"alice", "Alice"} {
		s.rename("bob", name).says(http.StatusBadRequest, "User name "+name+" is already taken.")
	}
	s.get("bob", "/users/alice").is(http.StatusNotFound)
	s.call("root", "DELETE", "/worksheets", deletion("worksheets", s.home("carol"))).ok()
	s.call("carol", "DELETE", "/users", deletion("users", "0x"+strings.Repeat("c", 32))).ok()
	s.rename("bob", "carol").says(http.StatusBadRequest, "already taken")
	s.rename("alice", "alice").ok() // it is hers
	if s.home("alice") != home {
		t.Error("she has lost her home worksheet")
	}
	s.addUser("carol") // the operator may
}

func TestFormerNamesOfOneUserAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 5 {
		s.rename("bob", fmt.Sprint("bob", i)).ok()
	}
	s.rename("bob", "more").says(http.StatusBadRequest, "You have changed your name too often")
	for _, name := range []string{"bob", "bob3", "bob"} {
		s.rename("bob", name).ok() // those that he had
	}
	s.rename("bob", "more").is(http.StatusBadRequest)
}

// IsName takes ASCII alone, so that no letter of another alphabet looks like one of another name, and no name begins with
// a digit, as ids do.
func TestNoNameLooksLikeTheSitesOwnOrAnID(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	mine := s.named("bob", "worksheets", "other").ok().text("data", 0, "id")
	for _, name := range []string{
		"root", "Root", "codalab", "public", "admin", "dashboard", "system", "0x12", "0", "-1", "аlice", "alice\u200b", "alice ", "ａlice", "al/ice", "alice::x",
	} {
		for what, a := range map[string]answer{
			"user": s.rename("bob", name), "group": s.named("bob", "groups", name), "worksheet": s.named("bob", "worksheets", name),
			"renamed worksheet": s.patch("bob", "worksheets", mine, map[string]any{"name": name}),
		} {
			if a.status != http.StatusBadRequest && a.status != http.StatusConflict || name == "root" && !strings.Contains(a.body, "looks like the site's own") {
				t.Errorf("%s %q: %d %s", what, name, a.status, a.body)
			}
		}
	}
	s.named("root", "worksheets", "dashboard").ok()
}

// cl perm DATA bob read would share with a group that mallory has named bob.
func TestGroupHasNoOtherUsersName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.named("alice", "groups", "bob").says(http.StatusConflict, "bob is the name of a user")
	s.named("alice", "groups", "BOB").says(http.StatusConflict, "is the name of a user")
	s.named("alice", "groups", "alice").ok()
}

// No route changes the owner of a group.
func TestGroupsOwnerStays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	group := s.named("alice", "groups", "lab").ok().text("data", 0, "id")
	for _, method := range []string{"PATCH", "PUT"} {
		s.call("alice", method, "/groups", edit("groups", group, map[string]any{"owner_id": bobsID})).is(http.StatusMethodNotAllowed)
	}
	s.call("bob", "POST", "/groups", map[string]any{"data": []any{map[string]any{
		"type": "groups", "attributes": map[string]string{"name": "other", "owner_id": alicesID}, "relationships": map[string]any{"owner": link("users", alicesID)},
	}}}).ok()
	if a := s.get("bob", "/groups/other").ok(); a.text("data", "relationships", "owner", "data", "id") != bobsID {
		t.Errorf("%s", a.body)
	}
}
