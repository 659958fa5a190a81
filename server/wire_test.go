package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// TestUploadAsTheStockClientSendsIt sends what urllib3 does: the whole URL in
// the request line, chunks, and a NUL after the last of them, which keeps the
// connection busy.
func TestUploadAsTheStockClientSendsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.dataset("data")
	site := httptest.NewServer(s.handler)
	defer site.Close()
	address := strings.TrimPrefix(site.URL, "http://")
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", address)
	must(t, err)
	_, err = fmt.Fprintf(c, "PUT %s/rest/bundles/%s/contents/blob/?filename=a.txt&unpack=0&state_on_success=ready&finalize_on_success=1&use_azure_blob_beta=0&store=&finalize_on_failure=1 HTTP/1.1\r\n"+
		"Host: %s\r\nAccept-Encoding: identity\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer %s\r\nX-Requested-With: XMLHttpRequest\r\n\r\n"+
		"6\r\nhello\n\r\n3\r\nyou\r\n0\r\n\r\n\x00", site.URL, uuid, address, s.tokens["alice"])
	must(t, err)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	body, err := io.ReadAll(r.Body)
	must(t, err)
	must(t, r.Body.Close())
	must(t, c.Close())
	if r.StatusCode != http.StatusOK || len(body) != 0 {
		t.Errorf("%s %s", r.Status, body)
	}
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/").ok().body; got != "hello\nyou" {
		t.Errorf("stored %q", got)
	}
}

// shape is a JSON value without its content: keys and types. Lists have the
// shape of their first element.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			out[key] = shape(value)
		}
		return out
	case []any:
		if len(v) == 0 {
			return "list"
		}
		return []any{shape(v[0])}
	case nil:
		return "null"
	}
	return fmt.Sprintf("%T", v)
}

func shapeOf(t *testing.T, text string) any {
	t.Helper()
	var v any
	must(t, json.Unmarshal([]byte(text), &v))
	return shape(v)
}

// TestAnswersHaveTheStockServersShape compares with answers of the stock
// server as they were seen on the wire, by keys and types.
func TestAnswersHaveTheStockServersShape(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home, data := s.home("alice"), s.upload("data", "x")
	job := s.run("cat in", map[string]any{"request_queue": "nosuch"}, codalab.Dependency{ParentUUID: data, ChildPath: "in"})
	s.await(job, codalab.StateStaged)
	// CodaLab's own server counts only sign-ins on its web page: there last_login is null.
	const (
		meta   = `"meta": {"version": "1.7.3"}`
		owner  = `"owner": {"data": {"type": "users", "id": "0"}}`
		public = `"first_name": "", "last_name": "", "affiliation": "", "avatar_id": null, "url": null, "has_access": true, "date_joined": "Fri Nov 20 07:57:09 2026", "user_name": "codalab"`
		own    = public + `, "last_login": "Fri Nov 20 07:57:09 2026", "disk_used": 1, "disk_quota": 2, "time_quota": 3, "email": "", "time_used": 0, "notifications": 2, "parallel_run_quota": 100` +
			`, "entries_quota": 20000000, "entries_used": 3` // ours alone
		sheet    = `"date_last_modified": "2026-11-20T07:57:32+00:00", "is_anonymous": false, "uuid": "0xa", "date_created": "2026-11-20T07:57:32+00:00", "title": null, "frozen": null, "name": "home-codalab", "tags": []`
		upload   = `{"type": "bundles", "attributes": {"is_anonymous": false, "uuid": "0x0", "dependencies": [], "permission_spec": "all", "command": null, "bundle_type": "dataset", "frozen": null, "metadata": {"created": 1, "data_size": 6, "description": "", "license": "", "link_format": "", "link_url": "", "name": "a", "source_url": "", "store": "", "tags": []}, "args": null, "state_details": "Bundle", "state": "ready", "permission": 2}, "relationships": {` + owner + `}, "id": "0x0"}`
		request  = `"allow_failed_dependencies": false, "created": 1, "description": "", "exclude_patterns": [], "name": "x", "request_cpus": 1, "request_disk": "", "request_docker_image": "", "request_gpus": 0, "request_memory": "2g", "request_network": true, "request_priority": 0, "request_queue": "nosuch", "request_time": "", "store": "", "tags": []`
		run      = `{"type": "bundles", "attributes": {"is_anonymous": false, "uuid": "0x2", "dependencies": [{"parent_state": "ready", "child_path": "x", "parent_path": "", "parent_uuid": "0x3", "parent_name": "a", "child_uuid": "0x2"}], "permission_spec": "all", "command": "echo", "bundle_type": "run", "frozen": null, "metadata": {"actions": [], "remote_history": [], "staged_status": "No worker", ` + request + `}, "args": "run", "state_details": "No worker", "state": "staged", "permission": 2}, "relationships": {` + owner + `}, "id": "0x2"}`
		included = `"included": [{"type": "users", "id": "0", "attributes": {` + public + `}}]`
	)
	kill := object("bundle-actions", map[string]string{"type": "kill", "uuid": job})
	for _, test := range []struct {
		method, path string
		body         any
		want         string
	}{
		{"GET", "/user", nil, `{"data": {"type": "users", "attributes": {` + own + `, "is_root_user": true, "protected_mode": false}, "id": "0"}, ` + meta + `}`},
		{"GET", "/users/bob", nil, `{"data": {"type": "users", "attributes": {` + public + `}, "id": "0"}, ` + meta + `}`},
		{"GET", "/worksheets?specs=/", nil, `{"data": [{"type": "worksheets", "id": "0xa", "attributes": {` + sheet + `, "last_item_id": null}, "relationships": {"items": {"data": []}, ` + owner + `}}], ` + meta + `}`},
		{"GET", "/worksheets/" + home + "?include=items", nil, `{"data": {"type": "worksheets", "id": "0xa", "attributes": {` + sheet + `, "last_item_id": 3, "permission": 2, "permission_spec": "all"}, "relationships": {"items": {"data": [{"type": "worksheet-items", "id": "1"}]}, ` + owner + `}}, "included": [{"type": "worksheet-items", "id": "115", "relationships": {"bundle": {"data": {"type": "bundles", "id": "0x0"}}, "subworksheet": {"data": null}, "worksheet": {"data": {"type": "worksheets", "id": "0x2"}}}, "attributes": {"value": "", "sort_key": 108, "type": "bundle"}}], ` + meta + `}`},
		{"GET", "/bundles/" + data, nil, `{"data": ` + upload + `, ` + meta + `}`},
		{"GET", "/bundles?include=owner&specs=data&worksheet=" + home, nil, `{"data": [` + upload + `], ` + included + `, ` + meta + `}`},
		{"GET", "/bundles/" + job, nil, `{"data": ` + run + `, ` + meta + `}`},
		{"GET", "/bundles/" + job + "/locations/", nil, `{"data": [], ` + meta + `}`},
		{"POST", "/bundles/" + data + "/locations/?need_bypass=1&is_dir=0", object("bundle_locations", map[string]any{"bundle_uuid": data}), `{"data": [{"type": "bundle_locations", "attributes": {"bundle_uuid": "0x0", "bundle_conn_str": null, "index_conn_str": null, "bundle_url": null}}], ` + meta + `}`},
		{"GET", "/bundles/" + data + "/contents/info/", nil, `{"data": {"name": "0x2", "size": 6, "perm": 420, "type": "file", "resolved_target": {"bundle_uuid": "0x2", "subpath": ""}}, ` + meta + `}`},
		{"POST", "/bundle-actions", kill, `{"data": [{"type": "bundle-actions", "id": null, "attributes": {"uuid": "0xc", "type": "kill"}}], ` + meta + `}`},
	} {
		a := s.call("alice", test.method, test.path, test.body).ok()
		if a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s", a.what, a.header.Get("Content-Type"))
		}
		if diff := cmp.Diff(shapeOf(t, test.want), shapeOf(t, a.body)); diff != "" {
			t.Errorf("%s (-stock +ours):\n%s", a.what, diff)
		}
	}
	b := s.bundle("alice", job)
	if want := "run in:" + data + ` "cat in" --request-cpus 1 --request-memory 2g --request-network --request-queue nosuch`; *b.Args != want {
		t.Errorf("args %s", *b.Args)
	}
}

// TestRunMessageHasTheStockServersShape is the same for workers.
func TestRunMessageHasTheStockServersShape(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("data", "x")
	s.run("cat in", cpuQueue, codalab.Dependency{ParentUUID: data, ChildPath: "in"})
	w := s.worker("alice", "w", "cpu")
	a := s.call("alice", "POST", "/workers/w/checkin", w.info).ok()
	keys := func(path ...any) []string {
		m, _ := a.value(path...).(map[string]any)
		var keys []string
		for key := range m {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		return keys
	}
	for _, test := range []struct {
		path []any
		want []string
	}{
		{[]any{0}, []string{"bundle", "resources", "type"}},
		{[]any{0, "bundle"}, []string{"args", "bundle_type", "command", "dependencies", "frozen", "is_anonymous", "location", "metadata", "owner_id", "owner_name", "state", "uuid"}}, // owner_name is ours
		{[]any{0, "resources"}, []string{"cpus", "disk", "docker_image", "gpus", "memory", "network", "runs_left", "tag", "tag_exclusive", "time"}},
	} {
		if diff := cmp.Diff(test.want, keys(test.path...)); diff != "" {
			t.Errorf("%v (-stock +ours):\n%s", test.path, diff)
		}
	}
	for _, key := range []string{"location", "parent_name", "parent_path", "parent_uuid", "child_path", "child_uuid"} {
		if m, _ := a.value(0, "bundle", "dependencies", 0).(map[string]any); !contains(m, key) {
			t.Errorf("a dependency without %s", key)
		}
	}
}

func contains(m map[string]any, key string) bool {
	_, ok := m[key]
	return ok
}
