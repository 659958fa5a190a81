package server_test

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// subject is what alice made for a request. The group "readers", of which carol is a member, may
// read it all. Nobody else may.
type subject struct {
	*site
	sheet, data, open, run string // a worksheet; a dataset; one without contents; a run
	group                  string // a group of alice with nobody else in it
}

// roles are those of which each route is asked, in the order of a row's statuses.
func roles() []string { return []string{"", "bob", "carol", "alice", "root"} }

// tokenRoles are worker tokens of alice and of root, and program tokens of a bridge and of a worker manager, all for the
// worker "w". Each route is asked of them, too.
func tokenRoles() []string {
	return []string{"alice's worker", "root's worker", "alice's bridge", "root's bridge", "alice's manager", "root's manager"}
}

// managerStatuses are what a worker manager's token gets for requests of routes that refuse the other tokens.
func managerStatuses() map[string]int {
	return map[string]int{
		"GET /bundles":      http.StatusForbidden,                                                  // it searches for staged runs alone, see TestManagersToken…
		"GET /workers/info": http.StatusOK, "DELETE /workers/{worker}/token": http.StatusForbidden, // of another worker
	}
}

// statusOf is what a token gets for a request of routeRows.
func statusOf(role, pattern string) int {
	program := !strings.HasSuffix(role, "worker")
	switch manager := strings.HasSuffix(role, "manager"); {
	case pattern == "GET /workers/{worker}/token" && program:
		return http.StatusOK
	case pattern == "POST /workers/{worker}/token" && program && manager:
		return http.StatusOK
	case pattern == "POST /workers/{worker}/token" && program:
		return http.StatusForbidden
	case manager && managerStatuses()[pattern] != 0:
		return managerStatuses()[pattern]
	}
	return cmp.Or(tokenStatuses()[pattern], http.StatusForbidden)
}

// tokenStatuses are what worker tokens get for the requests of routeRows. All other routes refuse them, and
// these refuse what their worker does not need: here it has no runs.
func tokenStatuses() map[string]int {
	const ok, no = http.StatusOK, http.StatusForbidden
	return map[string]int{
		"GET /workers/{worker}/token": http.StatusNotFound,           // it is no program token
		"GET /user":                   ok, "GET /bundles/{uuid}": ok, // a private one, see TestWorkerToken…
		"GET /bundles/{uuid}/contents/info/{path...}": no, "GET /bundles/{uuid}/contents/blob/{path...}": no,
		"PUT /bundles/{uuid}/contents/blob/{$}": no,
		"POST /workers/{worker}/checkin":        ok, "POST /workers/{worker}/start_bundle/{uuid}": ok, // the answer is false
		"POST /workers/{worker}/start_bundles":  ok,                    // the answers are false
		"POST /workers/{worker}/results":        ok,                    // the answers are refusals
		"POST /workers/{worker}/energy":         ok,                    // other workers' runs are ignored
		"POST /workers/{worker}/token":          http.StatusBadRequest, // a renewal has no seconds
		"POST /workers/{worker}/secrets/{uuid}": no,
		"POST /workers/{worker}/reply/{socket}": no, "POST /workers/{worker}/reply_data/{socket}": no,
	}
}

// call is one request on a subject.
type call func(subject) (path string, body any)

// row is what each of roles gets for a request.
type row struct {
	pattern  string
	statuses [5]int
	call     call
}

func link(kind, id string) map[string]any {
	return map[string]any{"data": map[string]string{"type": kind, "id": id}}
}

func deletion(kind, id string) any {
	return map[string]any{"data": []any{map[string]string{"type": kind, "id": id}}}
}

// edit is a request that changes one object.
func edit(kind, id string, attributes map[string]any) any {
	return map[string]any{"data": []any{map[string]any{"type": kind, "id": id, "attributes": attributes}}}
}

func permissionRequest(kind, id, group string, permission int) any {
	return map[string]any{"data": []any{map[string]any{
		"type": kind + "-permissions", "attributes": map[string]any{"permission": permission},
		"relationships": map[string]any{kind: link(kind+"s", id), "group": link("groups", group)},
	}}}
}

// netcatRows are those of the routes to a running bundle's container. The bundle does not run, so the
// requests of readers are refused, too; TestNetcat… are about one that runs.
func netcatRows() []row {
	const no = http.StatusForbidden
	all := [5]int{no, no, no, no, no}
	rows := []row{{"PUT /bundles/{uuid}/netcat/{port}/{$}", all, func(s subject) (string, any) {
		return "/bundles/" + s.data + "/netcat/80/", map[string]string{"message": "x"}
	}}}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		rows = append(rows, row{method + " /bundles/{uuid}/netcurl/{port}/{path...}", all, func(s subject) (string, any) {
			return "/bundles/" + s.data + "/netcurl/80/x", nil
		}})
	}
	return rows
}

// routeRows say what each role gets from each route.
func routeRows() []row {
	const (
		ok, none  = http.StatusOK, http.StatusNoContent
		no, login = http.StatusForbidden, http.StatusUnauthorized
		missing   = http.StatusNotFound
	)
	everybody, users := [5]int{ok, ok, ok, ok, ok}, [5]int{login, ok, ok, ok, ok}
	publicReaders := [5]int{no, no, ok, ok, ok}
	owners := [5]int{login, no, no, ok, ok}
	at := func(path string, body any) call {
		return func(subject) (string, any) { return path, body }
	}
	return append(netcatRows(), []row{
		{"GET /user", users, at("/user", nil)},
		{"PATCH /user", users, at("/user", map[string]any{"data": map[string]any{"type": "users", "attributes": map[string]any{"affiliation": "x"}}})},
		{"PATCH /user/increment_disk_used", owners, func(s subject) (string, any) {
			return "/user/increment_disk_used", object("x", map[string]any{"disk_used_increment": 1, "bundle_uuid": s.open})
		}},
		{"GET /users", everybody, at("/users?keywords=", nil)},
		{"GET /users/{user}", everybody, at("/users/alice", nil)},
		{"PATCH /users", [5]int{login, no, no, no, ok}, at("/users", edit("users", "0x"+strings.Repeat("b", 32), map[string]any{"time_quota": 1}))},
		{"DELETE /users", [5]int{login, login, login, http.StatusNotFound, http.StatusNotFound}, at("/users", deletion("users", "0x"+strings.Repeat("a", 32)))}, // who owns something

		{"GET /user/sessions", users, at("/user/sessions", nil)},
		{"DELETE /user/sessions", users, at("/user/sessions", nil)},
		{"DELETE /user/sessions/{session}", [5]int{login, missing, missing, none, missing}, func(s subject) (string, any) {
			return "/user/sessions/" + s.otherSession(), nil
		}},
		{"POST /user/password", [5]int{login, no, no, no, no}, at("/user/password", codalab.PasswordChange{Old: "wrong", New: "secret enough"})}, // see TestPassword…

		{"GET /offers", users, at("/offers", nil)},

		{"GET /groups", users, at("/groups", nil)},
		{"POST /groups", users, func(subject) (string, any) {
			return "/groups", object("groups", map[string]string{"name": "g" + codalab.NewUUID()})
		}},
		{"DELETE /groups", [5]int{login, no, no, none, none}, func(s subject) (string, any) { return "/groups", deletion("groups", s.group) }},
		{"GET /groups/{group}", users, at("/groups/readers", nil)},
		{"POST /groups/{group}/relationships/members", owners, func(s subject) (string, any) {
			return "/groups/" + s.group + "/relationships/members", deletion("users", "bob")
		}},
		{"POST /groups/{group}/relationships/admins", owners, func(s subject) (string, any) {
			return "/groups/" + s.group + "/relationships/admins", deletion("users", "bob")
		}},
		{"DELETE /groups/{group}/relationships/members", [5]int{login, no, no, none, none}, func(s subject) (string, any) {
			return "/groups/" + s.group + "/relationships/members", deletion("users", "bob")
		}},
		{"DELETE /groups/{group}/relationships/admins", [5]int{login, no, no, none, none}, func(s subject) (string, any) {
			return "/groups/" + s.group + "/relationships/admins", deletion("users", "bob")
		}},

		{"GET /worksheets", publicReaders, func(s subject) (string, any) { return "/worksheets?specs=" + s.sheet, nil }},
		{"POST /worksheets", users, func(subject) (string, any) {
			return "/worksheets", object("worksheets", map[string]string{"name": "w" + codalab.NewUUID()})
		}},
		{"PATCH /worksheets", owners, func(s subject) (string, any) {
			return "/worksheets", edit("worksheets", s.sheet, map[string]any{"title": "x"})
		}},
		{"DELETE /worksheets", owners, func(s subject) (string, any) { return "/worksheets?force=1", deletion("worksheets", s.sheet) }},
		{"GET /worksheets/sample/{$}", everybody, at("/worksheets/sample/", nil)},
		{"GET /worksheets/{uuid}", publicReaders, func(s subject) (string, any) { return "/worksheets/" + s.sheet + "?include=items", nil }},
		{"POST /worksheets/{uuid}/add-items", owners, func(s subject) (string, any) {
			return "/worksheets/" + s.sheet + "/add-items", map[string]any{"items": []string{"x"}}
		}},
		{"POST /worksheet-items", owners, func(s subject) (string, any) {
			return "/worksheet-items?uuid=" + s.sheet, object("worksheet-items", map[string]string{"type": "markup", "value": "x"})
		}},
		{"POST /worksheet-permissions", owners, func(s subject) (string, any) {
			return "/worksheet-permissions", permissionRequest("worksheet", s.sheet, "public", store.PermissionAll)
		}},

		{"GET /bundles", [5]int{missing, missing, ok, ok, ok}, func(s subject) (string, any) { return "/bundles?specs=" + s.data, nil }}, // see TestUnreadable…
		{"GET /bundles/{uuid}", [5]int{missing, missing, ok, ok, ok}, func(s subject) (string, any) { return "/bundles/" + s.data, nil }},
		{"GET /bundles/{uuid}/history", owners, func(s subject) (string, any) { return "/bundles/" + s.data + "/history", nil }},
		{"GET /bundles/{uuid}/usage", publicReaders, func(s subject) (string, any) { return "/bundles/" + s.data + "/usage", nil }},
		{"POST /bundles", owners, func(s subject) (string, any) {
			return "/bundles?worksheet=" + s.sheet, object("bundles", map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", "x", nil)})
		}},
		{"PATCH /bundles", owners, func(s subject) (string, any) {
			return "/bundles", edit("bundles", s.data, map[string]any{"metadata": map[string]string{"name": "mine"}})
		}},
		{"DELETE /bundles", owners, func(s subject) (string, any) { return "/bundles?force=1", deletion("bundles", s.data) }},
		{"POST /bundle-permissions", owners, func(s subject) (string, any) {
			return "/bundle-permissions", permissionRequest("bundle", s.data, "public", store.PermissionAll)
		}},
		{"POST /bundle-actions", owners, func(s subject) (string, any) {
			return "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": s.run})
		}},
		{"GET /bundles/{uuid}/contents/info/{path...}", publicReaders, func(s subject) (string, any) { return "/bundles/" + s.data + "/contents/info/", nil }},
		{"GET /bundles/{uuid}/contents/blob/{path...}", publicReaders, func(s subject) (string, any) { return "/bundles/" + s.data + "/contents/blob/", nil }},
		{"PUT /bundles/{uuid}/contents/blob/{$}", owners, func(s subject) (string, any) {
			return "/bundles/" + s.open + "/contents/blob/?filename=x&unpack=0", "x"
		}},
		{"GET /bundles/{uuid}/locations/{$}", users, func(s subject) (string, any) { return "/bundles/" + s.data + "/locations/", nil }},
		{"POST /bundles/{uuid}/locations/{$}", owners, func(s subject) (string, any) {
			return "/bundles/" + s.data + "/locations/?need_bypass=1", object("bundle_locations", map[string]any{"bundle_uuid": s.data})
		}},

		{"GET /bundle_stores", users, at("/bundle_stores", nil)},
		{"GET /bundle_stores/{uuid}", [5]int{login, missing, missing, missing, missing}, at("/bundle_stores/0x1", nil)},
		{"POST /bundle_stores", [5]int{login, no, no, no, http.StatusBadRequest}, at("/bundle_stores", object("bundle_stores", map[string]string{"name": "x"}))},

		{"GET /interpret/worksheet/{uuid}", publicReaders, func(s subject) (string, any) { return "/interpret/worksheet/" + s.sheet, nil }},
		{"POST /interpret/genpath-table-contents", everybody, func(s subject) (string, any) { // see TestGenpaths…
			return "/interpret/genpath-table-contents", map[string]any{"contents": []any{map[string]any{"x": []any{s.data, "/", nil}}}}
		}},
		{"POST /interpret/search", everybody, at("/interpret/search", map[string]any{"keywords": []string{".count"}})},
		{"POST /interpret/wsearch", everybody, at("/interpret/wsearch", map[string]any{"keywords": []string{"x"}})},
		{"POST /cli/command", [5]int{login, missing, no, ok, ok}, func(s subject) (string, any) { // see TestCommand…
			return "/cli/command", map[string]any{"worksheet_uuid": s.sheet, "command": "rm --force " + s.data}
		}},
		{"POST /interpret/file-genpaths", everybody, func(s subject) (string, any) {
			return "/interpret/file-genpaths", map[string]any{"queries": []any{map[string]any{"bundle_uuid": s.data, "genpath": "/"}}}
		}},
		{"POST /interpret/values", everybody, func(s subject) (string, any) { // see TestValuesOfBundles…
			return "/interpret/values", map[string]any{"bundles": []string{s.data}, "paths": []string{"/stats.json:acc"}}
		}},
		{"POST /interpret/worksheet/{uuid}", [5]int{login, no, ok, ok, ok}, func(s subject) (string, any) { return "/interpret/worksheet/" + s.sheet, "x" }},
		{"GET /worksheets/{uuid}/raw", publicReaders, func(s subject) (string, any) { return "/worksheets/" + s.sheet + "/raw", nil }},
		{"POST /worksheets/{uuid}/raw", [5]int{login, no, no, none, none}, func(s subject) (string, any) { return "/worksheets/" + s.sheet + "/raw", "x" }},
		{"PUT /worksheets/{uuid}/raw", [5]int{login, no, no, none, none}, func(s subject) (string, any) { return "/worksheets/" + s.sheet + "/raw", "x" }},

		{"GET /notices", users, at("/notices", nil)},
		{"POST /notices", [5]int{login, no, no, no, no}, func(s subject) (string, any) { return "/notices", notice(s.run) }}, // see TestMail…
		{"DELETE /notices", [5]int{login, missing, missing, missing, missing}, at("/notices", deletion("notices", "0x1"))},
		{"POST /help/{$}", [5]int{login, no, no, no, no}, at("/help/", map[string]string{"message": "x"})}, // see TestHelp…
		{"GET /secrets", users, at("/secrets", nil)},
		{"POST /secrets", users, at("/secrets", setSecret("x", "A"))},
		{"DELETE /secrets", [5]int{login, missing, missing, missing, missing}, at("/secrets", deletion("secrets", "B"))},                                             // see TestSecret…
		{"POST /workers/{worker}/secrets/{uuid}", [5]int{login, no, no, no, no}, func(s subject) (string, any) { return "/workers/w/secrets/" + s.run, struct{}{} }}, // no worker has it

		{"GET /queues", users, at("/queues", nil)},
		{"GET /workers/info", users, at("/workers/info", nil)},
		{"GET /workers/code.tar.gz", [5]int{missing, missing, missing, missing, missing}, at("/workers/code.tar.gz", nil)}, // there is none
		{"GET /worker/code.tar.gz", [5]int{missing, missing, missing, missing, missing}, at("/worker/code.tar.gz", nil)},
		{"POST /workers/{worker}/checkin", users, at("/workers/w/checkin", codalab.CheckIn{})},
		{"POST /workers/{worker}/start_bundle/{uuid}", [5]int{login, missing, no, ok, ok}, func(s subject) (string, any) {
			return "/workers/w/start_bundle/" + s.run, codalab.StartBundle{}
		}},
		{"POST /workers/{worker}/start_bundles", users, func(s subject) (string, any) { // see TestClaims…
			return "/workers/w/start_bundles", codalab.StartBundles{Bundles: []codalab.BundleStart{{UUID: s.run}}}
		}},
		{"POST /workers/{worker}/results", users, func(s subject) (string, any) { // see TestResults…
			return "/workers/w/results", resultsBody(codalab.ResultsOf{UUID: s.run})
		}},
		{"POST /workers/{worker}/energy", users, func(s subject) (string, any) { // another worker's run is ignored
			return "/workers/w/energy", codalab.EnergyReport{Runs: []codalab.RunEnergy{{UUID: s.run, Joules: 1}}}
		}},
		{"POST /workers/{worker}/token", users, at("/workers/w/token", codalab.WorkerTokenRequest{Seconds: 60})},
		{"GET /workers/{worker}/token", [5]int{login, missing, missing, missing, missing}, at("/workers/w/token", nil)}, // a login is no program token
		{"POST /program_tokens", users, at("/program_tokens", codalab.ProgramTokenRequest{Workers: []string{"w"}, Days: 1})},
		{"GET /program_tokens", users, at("/program_tokens", nil)},
		{"DELETE /program_tokens/{token}", [5]int{login, missing, missing, missing, missing}, at("/program_tokens/none", nil)},
		{"DELETE /workers/{worker}/token", [5]int{login, none, none, none, none}, at("/workers/other/token", nil)},
		{"POST /workers/{worker}/reply/{socket}", [5]int{login, no, no, no, no}, at("/workers/w/reply/1", codalab.ReadReply{ErrorCode: 404})}, // nobody asked
		{"POST /workers/{worker}/reply_data/{socket}", [5]int{login, no, no, no, no}, at("/workers/w/reply_data/1?header_message={}", "x")},
	}...)
}

// makeReaders makes carol and the group of subjects' readers.
func (s *site) makeReaders() {
	s.t.Helper()
	s.addUser("carol")
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "readers"})).ok()
	s.call("alice", "POST", "/groups/readers/relationships/members", deletion("users", "carol")).ok()
}

// subject makes what a request needs. It shares the worksheet, and what is on it, with the readers.
func (s *site) subject() subject {
	s.t.Helper()
	sheet := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "w" + codalab.NewUUID()})).ok().text("data", 0, "id")
	s.share("alice", "worksheet", sheet, "public", store.PermissionNone)
	s.share("alice", "worksheet", sheet, "readers", store.PermissionRead)
	create := func(kind string) string {
		attributes := map[string]any{"bundle_type": kind, "metadata": metadata(kind, "x", nil)}
		if kind == "run" { // no worker takes it
			attributes["command"], attributes["metadata"] = "x", metadata(kind, "x", map[string]any{"request_queue": "none"})
		}
		return s.call("alice", "POST", "/bundles?worksheet="+sheet, object("bundles", attributes)).ok().text("data", 0, "id")
	}
	x := subject{site: s, sheet: sheet, data: create("dataset"), open: create("dataset"), run: create("run")}
	s.put(x.data, "filename=x&unpack=0", "confidential").ok()
	x.group = s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "g" + codalab.NewUUID()})).ok().text("data", 0, "id")
	return x
}

// TestEveryRouteChecksPermissions asks every route as every role.
func TestEveryRouteChecksPermissions(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
	s.setQuota(1<<30, 1<<40)
	s.makeReaders()
	s.addWorkerToken("alice", "w")
	s.addWorkerToken("root", "w")
	for _, user := range []string{"alice", "root"} {
		for _, manager := range []bool{false, true} {
			s.addProgramToken(user, codalab.ProgramTokenRequest{Workers: []string{"w"}, Manager: manager})
		}
	}
	known, tried := map[string]bool{}, 0
	ask := func(row row, role string, want int) {
		x := s.subject()
		path, body := row.call(x)
		method, _, _ := strings.Cut(row.pattern, " ")
		a := s.call(role, method, path, body)
		tried++
		if a.status != want {
			t.Errorf("%s as %q: %d %q, want %d", row.pattern, role, a.status, a.body, want)
		}
		if strings.Contains(a.body, "confidential") && a.status != http.StatusOK {
			t.Errorf("%s as %q tells %q", row.pattern, role, a.body)
		}
	}
	for _, row := range routeRows() {
		known[row.pattern] = true
		for i, role := range roles() {
			ask(row, role, row.statuses[i])
		}
		for _, role := range tokenRoles() {
			ask(row, role, statusOf(role, row.pattern))
		}
	}
	for _, one := range server.Calls() {
		token := strings.Contains(one.Pattern, "/oauth2/") || strings.Contains(one.Pattern, "/account/") || strings.Contains(one.Pattern, " /sso") // see TestTokens, TestReset…, TestBrowser…
		if here := one.Verdict != "absent" && !token; here != known[one.Pattern] {
			t.Errorf("of %s the test has a row: %t", one.Pattern, known[one.Pattern])
		}
		if _, here := tokenStatuses()[one.Pattern]; here != one.WorkerToken && !token {
			t.Errorf("worker tokens may use %s: %t", one.Pattern, one.WorkerToken)
		}
		if _, here := managerStatuses()[one.Pattern]; here != one.Manager {
			t.Errorf("tokens of worker managers may use %s: %t", one.Pattern, one.Manager)
		}
	}
	t.Logf("%d routes, %d requests", len(known), tried)
}

// TestSignInIsRequiredWhereTheSiteSaysSo asks every route that is open to everybody.
func TestSignInIsRequiredWhereTheSiteSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.RequireSignIn = true })
	s.makeReaders()
	x := s.subject()
	for _, row := range routeRows() {
		path, body := row.call(x)
		method, _, _ := strings.Cut(row.pattern, " ")
		s.call("", method, path, body).says(http.StatusUnauthorized, "User is not authenticated.")
	}
}

func TestUserWhoHasNotSignedInReadsWhatIsPublic(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("data", "x")
	s.get("", "/bundles/"+data+"/contents/blob/").is(http.StatusForbidden)
	s.share("alice", "bundle", data, "public", store.PermissionRead)
	if a := s.get("", "/bundles/"+data+"/contents/blob/").ok(); a.body != "x" {
		t.Errorf("%q", a.body)
	}
	s.put(data, "filename=x", "y").is(http.StatusForbidden)
}
