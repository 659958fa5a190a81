package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// TestDefaultPermissionDecidesWhoReadsWhatIsNew makes a worksheet of each kind, with a bundle, on servers with each setting.
// carol is in a group that root has made, bob in none of these; dave's group has alice, whom nobody asked.
func TestDefaultPermissionDecidesWhoReadsWhatIsNew(t *testing.T) {
	t.Parallel()
	for setting, readers := range map[store.DefaultPermission][]string{
		"": nil, store.DefaultNone: nil, store.DefaultGroup: {"carol"}, store.DefaultPublic: {"", "bob", "carol", "dave"},
	} {
		s := newSite(t, func(c *server.Config) { c.DefaultPermission = setting })
		s.addUser("carol")
		s.addUser("dave")
		for owner, group := range map[string]string{"root": "lab", "dave": "trap"} {
			s.call(owner, "POST", "/groups", object("groups", map[string]string{"name": group})).ok()
			s.call(owner, "POST", "/groups/"+group+"/relationships/members", deletion("users", "alice")).ok()
		}
		s.call("root", "POST", "/groups/lab/relationships/members", deletion("users", "carol")).ok()
		sheet := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "new"})).ok().text("data", 0, "id")
		bundle := s.call("alice", "POST", "/bundles?worksheet="+sheet, object("bundles", map[string]any{
			"bundle_type": "dataset", "metadata": metadata("dataset", "data", nil),
		})).ok().text("data", 0, "id")
		detached := s.call("alice", "POST", "/bundles?detached=1&worksheet="+sheet, object("bundles", map[string]any{
			"bundle_type": "dataset", "metadata": metadata("dataset", "data", nil),
		})).ok().text("data", 0, "id")
		s.call("alice", "DELETE", "/worksheets?force=1", deletion("worksheets", s.home("alice"))).ok()
		home := s.home("alice") // made anew by a GET
		s.readers(setting, "bundle on no worksheet", nil, func(user string) bool { return s.get(user, "/bundles/"+detached).status == http.StatusOK })
		s.readers(setting, "bundle", readers, func(user string) bool { return s.get(user, "/bundles/"+bundle).status == http.StatusOK })
		for what, uuid := range map[string]string{"worksheet": sheet, "home worksheet": home} {
			s.readers(setting, what, readers, func(user string) bool { return s.get(user, "/worksheets/"+uuid).status == http.StatusOK })
		}
	}
}

// readers checks which of the others may read an object of alice.
func (s *site) readers(setting store.DefaultPermission, what string, want []string, may func(user string) bool) {
	s.t.Helper()
	var got []string
	for _, user := range []string{"", "bob", "carol", "dave"} {
		if may(user) {
			got = append(got, user)
		}
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("with %q, the %s may be read by %q, want %q", setting, what, got, want)
	}
}

func TestNewBundleTellsWhoMayReadIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.DefaultPermission = store.DefaultPublic })
	sheet := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "new"})).ok().text("data", 0, "id")
	a := s.call("alice", "POST", "/bundles?include=group_permissions&worksheet="+sheet, object("bundles", map[string]any{
		"bundle_type": "dataset", "metadata": metadata("dataset", "data", nil),
	})).ok()
	if a.text("included", 0, "attributes", "group_name") != "public" || a.text("data", 0, "relationships", "group_permissions", "data", 0, "type") != "bundle-permissions" {
		t.Error(a.body)
	}
	s.call("alice", "POST", "/bundles?include=secrets&worksheet="+sheet, object("bundles", nil)).is(http.StatusBadRequest)
}

func TestUserIsToldThatPublicObjectsNeedASignIn(t *testing.T) {
	t.Parallel()
	for _, required := range []bool{false, true} {
		s := newSite(t, func(c *server.Config) { c.RequireSignIn = required })
		if a := s.get("alice", "/user").ok(); strings.Contains(a.body, `"require_sign_in":true`) != required {
			t.Errorf("required %t: %s", required, a.body)
		}
	}
}
