package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		password := func(user, password string) url.Values {
			return url.Values{"grant_type": {"password"}, "username": {user}, "password": {password}}
		}
		refresh := func(a answer) url.Values {
			return url.Values{"grant_type": {"refresh_token"}, "refresh_token": {a.text("refresh_token")}}
		}
		a := s.grant("codalab_worker_client", password("alice", "alice")).ok()
		if a.text("token_type") != "Bearer" || a.text("scope") != "default" || a.value("expires_in") != 3600.0 ||
			len(a.text("access_token")) < 30 || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v %s", a.header, a.body)
		}
		for _, form := range []url.Values{password("alice", "wrong"), password("nobody", "alice"), password("0x"+strings.Repeat("a", 32), "alice")} {
			a := s.grant("codalab_cli_client", form).is(http.StatusUnauthorized)
			if a.text("error") != "invalid_grant" || a.text("error_description") != "Invalid credentials given." {
				t.Errorf("%s", a.body)
			}
		}
		if a := s.grant("someone", password("alice", "alice")).is(401); a.text("error") != "invalid_client" {
			t.Errorf("%s", a.body)
		}
		s.grant("codalab_cli_client", refresh(a)).is(401) // another client's
		s.grant("codalab_worker_client", url.Values{"grant_type": {"magic"}}).is(400)

		time.Sleep(time.Hour + time.Second)
		s.get("alice", "/user").says(401, "User is not authenticated.")
		b := s.grant("codalab_worker_client", refresh(a)).ok()
		s.tokens["alice"] = b.text("access_token")
		s.get("alice", "/user").ok()
		s.grant("codalab_worker_client", refresh(a)).ok() // its answer may be lost
		time.Sleep(2 * time.Minute)
		s.grant("codalab_worker_client", refresh(a)).is(401) // it has been used
		time.Sleep(31 * 24 * time.Hour)
		s.grant("codalab_worker_client", refresh(b)).is(401)
	})
}

func TestTokensArePresented(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, header := range []string{"", "Bearer", "Bearer wrong", "Basic " + s.tokens["alice"], s.tokens["alice"]} {
		r := httptest.NewRequest(http.MethodGet, "/rest/user", nil)
		r.Header.Set("Authorization", header)
		s.send(r).says(401, "User is not authenticated.")
	}
}

// stockHash is the hash of "secret" in the form of CodaLab's own server, made by Python:
// hashlib.pbkdf2_hmac("sha256", b"secret", b"abcdefghijkl", 30000).
const stockHash = "pbkdf2_sha256$30000$abcdefghijkl$T6VbO6Dk/YpvFcNZKMVjus8YXk91QT/zSac5iIiHE4s="

func TestPasswordsOfTheStockServerAreTakenAndHashedAnew(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	u, err := s.store.User(t.Context(), "alice")
	must(t, err)
	must(t, server.CheckPasswordHash(stockHash))
	_, err = s.store.ChangeUser(t.Context(), u.ID, func(u *store.User) error { u.Password = stockHash; return nil })
	must(t, err)
	form := url.Values{"grant_type": {"password"}, "username": {"alice"}, "password": {"secret"}}
	for range 2 {
		s.grant("codalab_cli_client", form).ok()
		if u, err = s.store.User(t.Context(), "alice"); err != nil || !strings.HasPrefix(u.Password, "$argon2id$v=19$m=8,t=1,p=1$") || u.LastLogin.IsZero() {
			t.Errorf("%+v, %v", u, err)
		}
	}
	form.Set("password", "wrong")
	s.grant("codalab_cli_client", form).is(401)
	for _, hash := range []string{"", "secret", "$argon2id$v=19$m=8,t=1,p=1$abc", "$argon2id$v=19$m=9999999999,t=1,p=1$AAAAAAAAAAAAAAAA$AAAA", "pbkdf2_sha256$99999999999$a$AAAA"} {
		if server.CheckPasswordHash(hash) == nil {
			t.Errorf("%q is taken for a hash", hash)
		}
	}
}

func TestRevokedTokensAreGone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := httptest.NewRequest(http.MethodPost, "/rest/oauth2/revoke", strings.NewReader("token="+s.tokens["alice"]))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.send(r).ok()
	s.get("alice", "/user").is(401)
	s.get("bob", "/user").ok()
}

func TestUnreadableBundlesAreShownAsPrivate(t *testing.T) {
	t.Parallel()
	s := newSite(t, publicByDefault)
	sheet := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "open"})).ok().text("data", 0, "id")
	s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "open"})).says(400, "already exists")
	uuid := s.call("alice", "POST", "/bundles?worksheet="+sheet, object("bundles", map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", "data", nil)})).ok().text("data", 0, "id")
	s.share("alice", "bundle", uuid, "public", store.PermissionNone)
	a := s.get("bob", "/worksheets/"+sheet+"?include=items,items.bundle,items.bundle.owner,owner").ok()
	if a.value("data", "attributes", "permission") != 1.0 || strings.Contains(a.body, `"data"}`) || !strings.Contains(a.body, `"<private>"`) && !strings.Contains(a.body, `\u003cprivate\u003e`) {
		t.Errorf("bob sees %s", a.body)
	}
	if !strings.Contains(s.get("alice", "/worksheets/"+sheet+"?include=items,items.bundle").ok().body, uuid) {
		t.Error("alice does not see her bundle")
	}
}

func TestBadInputIsRefusedInOneSentence(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home, data, missing := s.home("alice"), s.upload("data", "x"), "0x"+strings.Repeat("0", 32)
	bundles := "/bundles?worksheet=" + home
	run := func(more map[string]any, change func(map[string]any)) any {
		attributes := map[string]any{"bundle_type": "run", "command": "x", "metadata": metadata("run", "job", more)}
		if change != nil {
			change(attributes)
		}
		return object("bundles", attributes)
	}
	dependency := func(d ...codalab.Dependency) any {
		return run(nil, func(a map[string]any) { a["dependencies"] = d })
	}
	patch := func(uuid string, attributes any) any {
		return map[string]any{"data": []any{map[string]any{"type": "bundles", "id": uuid, "attributes": attributes}}}
	}
	withoutCPUs := metadata("run", "job", nil)
	delete(withoutCPUs, "request_cpus")
	for _, test := range []struct {
		method, path string
		body         any
		status       int
		sentence     string
	}{
		{"GET", "/nosuch", nil, 404, "Not found: '/nosuch'"},
		{"DELETE", "/user", nil, 405, "Method not allowed."},
		{"GET", "/users/nobody", nil, 404, "User nobody not found"},
		{"GET", "/bundles/" + missing, nil, 404, "Bundle " + missing + " not found"},
		{"GET", "/bundles/" + missing + "/contents/info/?depth=1", nil, 403, "does not have sufficient permissions on bundle " + missing + " (have none, need read)."},
		{"GET", "/bundles/" + data + "?include=magic", nil, 400, "Unsupported include: 'magic'"},
		{"GET", "/bundles", nil, 400, "Request must include either 'keywords' or 'specs'"},
		{"GET", "/bundles?specs=", nil, 400, "Tried to expand empty bundle_spec!"},
		{"GET", "/bundles?specs=0x0000", nil, 404, "uuid prefix 0x0000 doesn't match any bundles"},
		{"GET", "/bundles?specs=nosuch&worksheet=" + home, nil, 404, "bundle spec nosuch doesn't match any bundles"},
		{"GET", "/bundles?specs=data%5E9&worksheet=" + home, nil, 400, "bundle spec data matches 1 bundles, index 9 out of bounds"},
		{"GET", "/bundles?specs=%5E9&worksheet=" + home, nil, 400, "1 bundles, index 9 out of bounds"},
		{"GET", "/bundles?specs=a%20b&worksheet=" + home, nil, 400, "Invalid bundle_spec: a b"},
		{"GET", "/worksheets?specs=nosuch", nil, 404, "No worksheet found with name 'nosuch'"},
		{"GET", "/worksheets/" + missing, nil, 403, "does not have sufficient permissions on worksheet " + missing + " (have none, need read)."},
		{"POST", "/worksheets", object("worksheets", map[string]string{"name": "9"}), 400, "Names must match"},
		{"POST", bundles, "{", 400, "Invalid JSON"},
		{"POST", bundles, map[string]any{"data": []any{}}, 400, "list of objects"},
		{"POST", bundles, strings.NewReader(`"` + strings.Repeat("x", 9<<20) + `"`), 413, "larger than"},
		{"POST", bundles + "&detached=2", run(nil, nil), 400, "detached must be 0 or 1, not '2'"},
		{"POST", "/bundles", run(nil, nil), 400, "A worksheet is needed"},
		{"POST", "/bundles?worksheet=" + missing, run(nil, nil), 403, "(have none, need all)"},
		{"POST", bundles, run(nil, func(a map[string]any) { a["bundle_type"] = "directory" }), 400, "'directory'"},
		{"POST", bundles, run(nil, func(a map[string]any) { delete(a, "command") }), 400, "A run needs a command"},
		{"POST", bundles, run(nil, func(a map[string]any) { a["command"] = 7 }), 400, "wrong types"},
		{"POST", bundles, run(nil, func(a map[string]any) { a["uuid"] = "0xno" }), 400, "'0xno' is not a uuid"},
		{"POST", bundles, run(nil, func(a map[string]any) { a["uuid"] = data }), 409, "exists already"},
		{"POST", bundles, run(nil, func(a map[string]any) { a["metadata"] = withoutCPUs }), 400, "Missing metadata key: request_cpus"},
		{"POST", bundles, run(map[string]any{"color": "red"}, nil), 400, "Unexpected metadata key: color"},
		{"POST", bundles, run(map[string]any{"request_memory": "much"}, nil), 400, `invalid size "much"`},
		{"POST", bundles, run(map[string]any{"request_cpus": -1}, nil), 400, "request_cpus should be at least 0, was -1"},
		{"POST", bundles, run(map[string]any{"name": "a b"}, nil), 400, "Invalid name 'a b'"},
		{"POST", bundles, dependency(codalab.Dependency{ParentUUID: "data", ChildPath: "in"}), 400, "Dependency 'in' names no bundle: 'data'"},
		{"POST", bundles, dependency(codalab.Dependency{ParentUUID: data, ChildPath: "../in"}), 400, "leads out of a bundle"},
		{"POST", bundles, dependency(codalab.Dependency{ParentUUID: data, ChildPath: "/../in"}), 400, "leads out of a bundle"},
		{"POST", bundles, dependency(codalab.Dependency{ParentUUID: data, ChildPath: "in", ParentPath: "/etc"}), 400, "leads out of a bundle"},
		{"POST", bundles, dependency(codalab.Dependency{ParentUUID: data, ChildPath: "in\nout"}), 400, "has a line break"},
		{"POST", bundles, dependency(codalab.Dependency{ParentUUID: data, ChildPath: "in"}, codalab.Dependency{ParentUUID: data, ChildPath: "in/"}), 400, "given twice"},
		{"PATCH", "/bundles", patch(data, map[string]any{"metadata": map[string]any{"color": "red"}}), 400, "Unexpected metadata key: color"},
		{"PATCH", "/bundles", patch(data, map[string]any{"metadata": map[string]any{"name": "a b"}}), 400, "Invalid name"},
		{"PATCH", "/bundles", patch(missing, map[string]any{}), 403, "(have none, need all)"},
		{"POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "write", "uuid": data}), 400, "A write action has a subpath and a string"},
		{"POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": missing}), 403, "(have none, need all)"},
		{"PATCH", "/user/increment_disk_used", object("x", map[string]any{"disk_used_increment": 0, "bundle_uuid": data}), 400, "Only positive disk increments"},
		{"PUT", "/bundles/" + data + "/contents/blob/?filename=x", "x", 403, "Contents cannot be modified, bundle already finalized."},
		{"PUT", "/bundles/" + data + "/contents/blob/?unpack=yes", "x", 400, "unpack must be 0 or 1, not 'yes'"},
		{"PUT", "/bundles/" + data + "/contents/blob/?state_on_success=running", "x", 400, "state_on_success must be one of"},
		{"GET", "/bundles/" + data + "/contents/info/?depth=-1", nil, 400, "Depth must be at least 0"},
		{"GET", "/bundles/" + data + "/contents/info/x", nil, 404, "Path 'x' in bundle " + data + " not found"},
		{"GET", "/bundles/" + data + "/contents/blob/?head=x", nil, 400, "head must be a number, not 'x'"},
		{"POST", "/workers/w/checkin", "{", 400, "Invalid JSON"},
		{"POST", "/workers/w/start_bundle/" + missing, codalab.StartBundle{}, 404, "Could not find bundle"},
		{"POST", "/workers/w/reply/1", codalab.ReadReply{}, 403, "Not your socket ID!"},
		{"POST", "/workers/w/reply_data/1", "x", 400, "Missing header message."},
		{"POST", "/workers/w/reply_data/1?header_message=x", "x", 400, "Header message should be in JSON format."},
	} {
		a := s.call("alice", test.method, test.path, test.body)
		a.what += fmt.Sprint(" ", test.path)
		a.says(test.status, test.sentence)
		if a.header.Get("Content-Type") != "text/plain; charset=utf-8" || strings.Contains(strings.TrimSpace(a.body), "\n") {
			t.Errorf("%s: %s %q", a.what, a.header.Get("Content-Type"), a.body)
		}
	}
}

func TestSpecs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home := s.home("alice")
	first, second, other := s.upload("data", "1"), s.upload("data", "2"), s.upload("other_one", "3")
	for spec, want := range map[string]string{
		first: first, first[:20]: first, "data": second, "data^1": second, "data^2": first, "^1": other, "^": other, "^3": first,
		"dat%": second, "d.*": second, "other%one": other, "home-alice/data": second, "/^3": first,
	} {
		a := s.get("alice", "/bundles?specs="+url.QueryEscape(spec)+"&worksheet="+home)
		if got := a.ok().text("data", 0, "id"); got != want {
			t.Errorf("%s: %s", spec, got)
		}
	}
	a := s.get("alice", "/bundles?specs=other_one&specs=data&worksheet="+home+"&include=owner,children,group_permissions,host_worksheets").ok()
	if a.text("data", 0, "id") != other || a.text("data", 1, "id") != second || a.text("data", 0, "relationships", "host_worksheets", "data", 0, "id") != home {
		t.Errorf("%s", a.body)
	}
	s.get("alice", "/bundles?specs=otherXone&worksheet="+home).is(404) // _ is no wildcard
}

func TestEdits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "1")
	edit := func(attributes map[string]any) answer {
		return s.call("alice", "PATCH", "/bundles", map[string]any{"data": []any{map[string]any{"type": "bundles", "id": uuid, "attributes": attributes}}})
	}
	edit(map[string]any{"metadata": map[string]any{"name": "better", "tags": []string{"a", "b"}}}).ok()
	if b := s.bundle("alice", uuid); b.Metadata.String("name") != "better" || len(b.Metadata.Strings("tags")) != 2 || !b.Metadata.Has("license") {
		t.Errorf("%v", b.Metadata)
	}
	if got := s.get("alice", "/bundles?specs=better&worksheet="+s.home("alice")).ok().text("data", 0, "id"); got != uuid {
		t.Errorf("found %s", got)
	}
	edit(map[string]any{"frozen": "2026-11-20T08:00:00"}).ok()
	edit(map[string]any{"metadata": map[string]any{"name": "no"}}).says(403, "Cannot mutate frozen bundle "+uuid+"(better).")
	edit(map[string]any{"frozen": nil, "metadata": map[string]any{"data_size": 1 << 40}}).ok()
	if b := s.bundle("alice", uuid); b.Metadata.Int("data_size") != 1 {
		t.Errorf("a client set the size to %v", b.Metadata["data_size"])
	}
	edit(map[string]any{"frozen": nil}).ok()
	running := s.dataset("half")
	s.call("alice", "PATCH", "/bundles", map[string]any{"data": []any{map[string]any{"id": running, "attributes": map[string]any{"frozen": "now"}}}}).
		says(403, "Cannot freeze bundle")
}
