package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// patch changes an object.
func (s *site) patch(user, kind, uuid string, attributes any) answer {
	s.t.Helper()
	return s.call(user, "PATCH", "/"+kind, map[string]any{"data": []any{map[string]any{"type": kind, "id": uuid, "attributes": attributes}}})
}

func TestPrivateParentIsNotNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	secret, open := s.upload("secret", "x"), s.upload("open", "y")
	s.share("alice", "bundle", open, "public", store.PermissionRead)
	job := s.run("cat a b", nil, codalab.Dependency{ChildPath: "a", ParentUUID: secret}, codalab.Dependency{ChildPath: "b", ParentUUID: open})
	s.share("alice", "bundle", job, "public", store.PermissionRead)
	sheet := s.home("alice")
	s.share("alice", "worksheet", sheet, "public", store.PermissionRead)
	for user, want := range map[string]string{"alice": "secret/ready open/ready", "root": "secret/ready open/ready", "bob": "<missing or private>/ open/ready", "": "<missing or private>/ open/ready"} {
		var got []string
		for _, d := range s.bundle(user, job).Dependencies {
			got = append(got, d.ParentName+"/"+string(d.ParentState))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q sees %s", user, text)
		}
	}
	for _, path := range []string{"/interpret/worksheet/" + sheet, "/worksheets/" + sheet + "?include=items,items.bundle", "/bundles?keywords=uuid=" + job} {
		if a := s.get("bob", path).ok(); strings.Contains(a.body, "secret") || !strings.Contains(a.body, job) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// foreignSheet is a worksheet of bob that shows a bundle of alice.
func (s *site) foreignSheet(name, uuid string) string {
	s.t.Helper()
	sheet := s.call("bob", "POST", "/worksheets", object("worksheets", map[string]string{"name": name})).ok().text("data", 0, "id")
	s.share("bob", "worksheet", sheet, "public", store.PermissionNone)
	s.call("bob", "POST", "/worksheets/"+sheet+"/add-items", map[string]any{"items": []string{uuid}, "item_type": "bundle"}).ok()
	return sheet
}

func TestWorksheetsOfStrangersKeepNoBundle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	s.share("alice", "bundle", uuid, "public", store.PermissionRead)
	sheet := s.foreignSheet("hidden", uuid)
	remove := func(query string) answer {
		return s.call("alice", "DELETE", "/bundles"+query, deletion("bundles", uuid))
	}
	refused := func(a answer, sentence string) {
		t.Helper()
		a.says(http.StatusBadRequest, sentence)
		if strings.Contains(a.body, "hidden") || strings.Contains(a.body, sheet) {
			t.Errorf("alice reads of bob's worksheet: %s", a.body)
		}
	}
	refused(remove(""), "appears in multiple worksheets (--force to override)")
	s.patch("bob", "worksheets", sheet, map[string]any{"frozen": "now"}).ok()
	refused(remove(""), "a worksheet that you may not read")
	remove("?force=1").ok()
	s.get("alice", "/bundles/"+uuid).is(http.StatusNotFound)
}

func TestOnlyFrozenWorksheetOfAStrangerNeedsForce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.call("alice", "POST", "/bundles?detached=1", object("bundles", map[string]any{
		"bundle_type": "dataset", "metadata": metadata("dataset", "data", nil),
	})).ok().text("data", 0, "id")
	s.share("alice", "bundle", uuid, "public", store.PermissionRead)
	sheet := s.foreignSheet("hidden", uuid)
	s.patch("bob", "worksheets", sheet, map[string]any{"frozen": "now"}).ok()
	s.call("alice", "DELETE", "/bundles", deletion("bundles", uuid)).says(http.StatusBadRequest, "appears in a frozen worksheet of another user (--force to override)")
	s.call("root", "DELETE", "/bundles?force=1", deletion("bundles", uuid)).says(http.StatusBadRequest, "need to delete worksheet first") // who may do that
	s.call("alice", "DELETE", "/bundles?force=1", deletion("bundles", uuid)).ok()
}

// bob renames himself to carol, makes the worksheet home-carol, and takes his own name again. Then the
// real carol comes.
func TestHomeWorksheetIsTheUsersOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	rename := func(name string) {
		s.call("bob", "PATCH", "/user", map[string]any{"data": map[string]any{"type": "users", "attributes": map[string]string{"user_name": name}}}).ok()
	}
	rename("carol")
	taken := s.home("bob")
	s.share("bob", "worksheet", taken, "public", store.PermissionAll)
	rename("bob")
	hashed := server.HashPassword("carol", server.PasswordCost{Passes: 1, KiB: 8})
	must(t, s.store.AddUser(t.Context(), store.User{ID: "0xcc", Name: "carol", Password: hashed}))
	s.loginAgain("carol")
	s.get("carol", "/worksheets?specs=/").says(http.StatusConflict, "The worksheet 'home-carol' belongs to another user")
	s.patch("root", "worksheets", taken, map[string]any{"name": "bobs"}).ok()
	if home := s.home("carol"); home == taken {
		t.Error("carol's home worksheet is bob's")
	}
}
