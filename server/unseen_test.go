package server_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// sameAnswer makes a request of bob about a private bundle or worksheet of alice, about a deleted one and about one that
// never was, and checks that the answers differ by the uuid alone.
func (s *site) sameAnswer(what string, uuids [3]string, call func(uuid string) answer) {
	s.t.Helper()
	ids := regexp.MustCompile(strings.Join(uuids[:], "|"))
	number := regexp.MustCompile(`"(id|last_item_id)":"?\d+"?|Modified: .*|date_last_modified":"[^"]*"`)
	var first string
	for i, uuid := range uuids {
		a := call(uuid)
		text := number.ReplaceAllString(ids.ReplaceAllString(http.StatusText(a.status)+" "+a.body, "UUID"), "N")
		switch {
		case i == 0:
			first = text
		case text != first:
			s.t.Errorf("%s tells that a uuid exists:\n%s\n%s", what, first, text)
		}
		if strings.Contains(a.body, "topsecret") {
			s.t.Errorf("%s tells the name: %s", what, a.body)
		}
	}
}

// unknown returns the uuids of a private bundle of alice, of a deleted one, and one that no bundle has had.
func (s *site) unknown() [3]string {
	s.t.Helper()
	uuids := [3]string{s.upload("topsecret", "x"), s.upload("topsecret", "x"), codalab.NewUUID()}
	s.call("alice", "DELETE", "/bundles", deletion("bundles", uuids[1])).ok()
	return uuids
}

func TestUnreadableBundleLooksLikeOneThatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addWorkerToken("bob", "w")
	uuids := s.unknown()
	for _, role := range []string{"", "bob", "bob's worker"} {
		s.askAll(role, subject{site: s, sheet: s.home("bob"), data: "UUID", open: "UUID", run: "UUID", group: "none"}, uuids)
	}
	for _, path := range []string{
		"/bundles?specs=UUID&depth=5", "/bundles?specs=UUID&include=children,group_permissions,host_worksheets,owner", "/bundles?keywords=uuid=UUID",
		"/bundles?keywords=dependency=UUID", "/bundles?keywords=UUID", "/worksheets?keywords=bundle=UUID", "/bundles/UUID/contents/info/x?depth=1",
	} {
		s.sameAnswer(path, uuids, func(uuid string) answer { return s.get("bob", strings.ReplaceAll(path, "UUID", uuid)) })
	}
	s.sameAnswer("a beginning", uuids, func(uuid string) answer {
		a := s.get("bob", "/bundles?specs="+uuid[:20])
		a.body = strings.ReplaceAll(a.body, uuid[:20], "UUID")
		return a
	})
	s.sameAnswer("dry-run", uuids, func(uuid string) answer {
		return s.call("bob", "DELETE", "/bundles?dry-run=1&recursive=1", deletion("bundles", uuid))
	})
	s.sameAnswer("chown", uuids, func(uuid string) answer { return s.chown("bob", "bundles", bobsID, uuid) })
}

// A worksheet shows its reader any uuid as a private bundle.
func TestWorksheetDoesNotTellWhetherItsBundlesExist(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuids := s.unknown()
	for _, path := range []string{
		"/bundles?specs=%5E1&worksheet=SHEET", "/bundles?specs=%5E2&worksheet=SHEET", "/worksheets/SHEET?include=items,items.bundle,items.bundle.owner,owner",
		"/interpret/worksheet/SHEET",
	} {
		s.sameAnswer(path, uuids, func(uuid string) answer {
			sheet := s.home("bob")
			s.call("bob", "POST", "/worksheet-items?replace=1&uuid="+sheet, map[string]any{"data": []any{}}).ok()
			s.call("bob", "POST", "/worksheets/"+sheet+"/add-items", map[string]any{"items": []string{uuid}, "item_type": "bundle"}).ok()
			a := s.get("bob", strings.ReplaceAll(path, "SHEET", sheet))
			a.body = strings.ReplaceAll(a.body, `"`+uuid[:8]+`"`, `"UUID"`)
			a.body = regexp.MustCompile(`"date_last_modified":"[^"]*"|"(sort_key|ids?|sort_keys|last_item_id|bundle_uuid_id)":[^,}]*`).ReplaceAllString(a.body, "N")
			return a
		})
	}
}

// A run with an input that its user may not read is refused as if there were none. A copy may have any inputs, and does
// not tell what they are.
func TestDependencyDoesNotTellWhetherItsParentExists(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuids := s.unknown()
	create := func(query, uuid string) answer {
		a := s.call("bob", "POST", "/bundles?worksheet="+s.home("bob")+query, object("bundles", map[string]any{
			"bundle_type": "run", "command": "x", "metadata": metadata("run", "job", nil),
			"dependencies": []codalab.Dependency{{ParentUUID: uuid, ChildPath: "in"}},
		}))
		if a.status == http.StatusOK {
			id := a.text("data", 0, "id")
			shown := s.get("bob", "/bundles/"+id).ok().body + s.get("bob", "/bundles/"+id+"/contents/info/in").body
			a.body = regexp.MustCompile(`"created":\d+`).ReplaceAllString(strings.ReplaceAll(a.body+shown, id, "RUN"), "")
		}
		return a
	}
	s.sameAnswer("a run", uuids, func(uuid string) answer { return create("", uuid).is(http.StatusForbidden) })
	s.sameAnswer("a copy", uuids, func(uuid string) answer { return create("&wait_for_upload=1", uuid).ok() })
}

// A uuid that a client chooses has to be free. That cannot be hidden; a deleted bundle looks like one that exists.
func TestChosenUUIDTellsNoMoreThanThatItIsTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuids := s.unknown()
	take := func(uuid string) answer {
		return s.call("bob", "POST", "/bundles?detached=1", object("bundles", map[string]any{
			"bundle_type": "dataset", "uuid": uuid, "metadata": metadata("dataset", "x", nil),
		}))
	}
	uuids[2] = uuids[0]
	s.sameAnswer("a chosen uuid", uuids, take)
	take(uuids[0]).says(http.StatusConflict, "exists already")
}

func TestUnreadableWorksheetLooksLikeOneThatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sheet := func(name string) string {
		uuid := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": name})).ok().text("data", 0, "id")
		s.share("alice", "worksheet", uuid, "public", store.PermissionNone)
		return uuid
	}
	uuids := [3]string{sheet("topsecret"), sheet("deleted"), codalab.NewUUID()}
	s.call("alice", "DELETE", "/worksheets", deletion("worksheets", uuids[1])).ok()
	for _, role := range []string{"", "bob"} {
		s.askAll(role, subject{site: s, sheet: "UUID", data: s.upload("x", "x"), open: "none", run: "none", group: "none"}, uuids)
	}
	for _, path := range []string{"/worksheets?specs=UUID", "/worksheets?keywords=uuid=UUID", "/bundles?specs=UUID/x", "/bundles?specs=x&worksheet=UUID", "/bundles?keywords=host_worksheet=UUID"} {
		s.sameAnswer(path, uuids, func(uuid string) answer { return s.get("bob", strings.ReplaceAll(path, "UUID", uuid)) })
	}
}

// A stranger's bundle that depends on a public one is neither named nor does it keep the public one.
func TestStrangersChildKeepsNoBundleAndIsNotNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	s.share("alice", "bundle", uuid, "public", store.PermissionRead)
	child := s.call("bob", "POST", "/bundles?worksheet="+s.home("bob"), object("bundles", map[string]any{
		"bundle_type": "run", "command": "x", "metadata": metadata("run", "hidden", map[string]any{"request_queue": "none"}),
		"dependencies": []codalab.Dependency{{ParentUUID: uuid, ChildPath: "in"}},
	})).ok().text("data", 0, "id")
	for _, query := range []string{"", "?recursive=1", "?recursive=1&force=1"} {
		a := s.call("alice", "DELETE", "/bundles"+query, deletion("bundles", uuid))
		if a.status == http.StatusOK || strings.Contains(a.body, child) || strings.Contains(a.body, "hidden") || !strings.Contains(a.body, "1 of others, which you may not read") {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	if a := s.get("alice", "/bundles?specs="+uuid+"&depth=3&include=children").ok(); strings.Contains(a.body, child) {
		t.Errorf("%s", a.body)
	}
	s.call("alice", "DELETE", "/bundles?force=1", deletion("bundles", uuid)).ok()
}

func TestMembersOfAGroupAreShownToMembers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addUser("carol")
	s.addUser("dora")
	group := s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok().text("data", 0, "id")
	s.call("alice", "POST", "/groups/lab/relationships/members", deletion("users", "bob")).ok()
	s.call("alice", "POST", "/groups/lab/relationships/admins", deletion("users", "dora")).ok()
	for user, sees := range map[string]bool{"alice": true, "bob": true, "dora": true, "root": true, "carol": false} {
		for _, spec := range []string{"lab", group} {
			a := s.get(user, "/groups/"+spec).ok()
			members, _ := a.value("data", "relationships", "members", "data").([]any)
			admins, _ := a.value("data", "relationships", "admins", "data").([]any)
			if len(members)+len(admins) > 0 != sees || strings.Contains(a.body, `"bob"`) != sees || strings.Contains(a.body, `"dora"`) != sees {
				t.Errorf("%s asks for %s: %s", user, spec, a.body)
			}
			if a.text("data", "relationships", "owner", "data", "id") != alicesID { // with whom one shares
				t.Errorf("%s asks for the owner of %s: %s", user, spec, a.body)
			}
		}
	}
	s.get("bob", "/groups/"+group[:10]).ok()
	s.get("carol", "/groups/"+group[:10]).says(http.StatusNotFound, "Found no group with uuid starting with '"+group[:10]+"'")
	s.get("carol", "/bundles?keywords=group="+group).says(http.StatusNotFound, "Found no group with uuid starting with '"+group+"'")
	s.get("", "/bundles?keywords=group="+group[:10]).is(http.StatusNotFound)
	s.share("carol", "worksheet", s.home("carol"), "lab", store.PermissionRead) // she may share with it
}

func TestMembersLeaveAndOwnersStay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addUser("carol")
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok()
	s.call("alice", "POST", "/groups/lab/relationships/members", deletion("users", "bob")).ok()
	s.call("alice", "POST", "/groups/lab/relationships/admins", deletion("users", "carol")).ok()
	leave := func(by, who string) answer {
		return s.call(by, "DELETE", "/groups/lab/relationships/members", deletion("users", who))
	}
	leave("bob", "0x"+strings.Repeat("c", 32)).says(http.StatusForbidden, "You are not the admin of group lab.")
	leave("carol", alicesID).says(http.StatusBadRequest, "The owner of group lab cannot be removed from it.")
	s.call("carol", "POST", "/groups/lab/relationships/members", deletion("users", "alice")).says(http.StatusBadRequest, "Cannot relegate the group owner")
	leave("bob", bobsID).is(http.StatusNoContent)
	leave("bob", bobsID).is(http.StatusForbidden)
	if a := s.get("bob", "/groups").ok(); strings.Contains(a.body, "lab") {
		t.Errorf("%s", a.body)
	}
}

// Names are global, as on CodaLab's own server: a taken one is refused, whoever has it. The refusal says nothing else.
func TestTakenNameTellsNoMoreThanThatItIsTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sheet := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "taken"})).ok().text("data", 0, "id")
	s.share("alice", "worksheet", sheet, "public", store.PermissionNone)
	group := s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "taken"})).ok().text("data", 0, "id")
	for path, status := range map[string]int{"/worksheets": http.StatusBadRequest, "/groups": http.StatusConflict} {
		a := s.call("bob", "POST", path, object(path[1:], map[string]string{"name": "taken"})).is(status)
		if strings.Contains(a.body, sheet) || strings.Contains(a.body, group) || strings.Contains(a.body, "alice") {
			t.Errorf("%s", a.body)
		}
	}
	a := s.get("bob", "/worksheets?specs="+url.QueryEscape("taken"))
	if a.status != http.StatusForbidden || strings.Contains(a.body, "alice") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// sent is a request's body as text.
func sent(tb testing.TB, body any) string {
	tb.Helper()
	if text, ok := body.(string); ok || body == nil {
		return text
	}
	text, err := json.Marshal(body)
	must(tb, err)
	return string(text)
}

// askAll makes every request of routeRows that names the uuid of a subject, about each of these uuids. The subject has the
// text UUID in its place.
func (s *site) askAll(role string, x subject, uuids [3]string) {
	s.t.Helper()
	for _, row := range routeRows() {
		path, body := row.call(x)
		text := sent(s.t, body)
		if !strings.Contains(path+text, "UUID") {
			continue
		}
		method, _, _ := strings.Cut(row.pattern, " ")
		s.sameAnswer(role+" "+row.pattern, uuids, func(uuid string) answer {
			return s.call(role, method, strings.ReplaceAll(path, "UUID", uuid), strings.ReplaceAll(text, "UUID", uuid))
		})
	}
}
