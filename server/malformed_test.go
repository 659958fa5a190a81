package server_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
)

// hostileValues are JSON values, not all of them valid, for the place of any value of a request.
func hostileValues() []string {
	return []string{
		`null`, `-1`, `0.5`, `1e999`, `9223372036854775807`, `-9223372036854775808`, `""`, `"x\u0000y"`, "\"\xff\"", `"\ud800"`, "\"\x00\"", `"%' OR 1=1 --\n"`,
		`"../../x"`, `"` + long(3000) + `"`, `[]`, `[null]`, `{}`, `{"id": {}, "id": "x"}`, strings.Repeat(`[`, 10_001) + strings.Repeat(`]`, 10_001),
	}
}

// long is a name that does not compress well: an index of PostgreSQL compresses what it keeps.
func long(n int) string {
	var text strings.Builder
	for text.Len() < n {
		text.WriteString("x" + codalab.NewUUID()[2:])
	}
	return text.String()[:n]
}

// hostileBodies are whole requests.
func hostileBodies() []string {
	bodies := []string{
		``, `{`, `nul`, "\xef\xbb\xbf{}", "\x00", `{"data": [{}]} x`, `{"data": 1, "data": [{}]}`, `{"data": {}}`, `{"data": [{}, null]}`,
		strings.Repeat(" ", 9<<20), `{"included": 7}`, `{"data": [{"type": "x", "id": "y", "attributes": null, "relationships": null}]}`,
	}
	for _, v := range hostileValues() {
		bodies = append(bodies, v, `{"data": `+v+`}`, `{"data": [`+v+`]}`)
	}
	return bodies
}

// mutants returns copies of a request in which a hostile value stands in the place of one value. Some
// have a good object before the bad one.
func mutants(t *testing.T, body any, good any) []string {
	t.Helper()
	const mark = "@hostile@"
	text, err := json.Marshal(body)
	must(t, err)
	var all []string
	add := func(whole any, values ...string) {
		form, err := json.Marshal(whole)
		must(t, err)
		for _, v := range values {
			all = append(all, strings.Replace(string(form), `"`+mark+`"`, v, 1))
		}
	}
	for n := 0; ; n++ {
		var whole any
		must(t, json.Unmarshal(text, &whole))
		if left := n; !replaceNth(&whole, &left, mark) {
			return all
		}
		add(whole, hostileValues()...)
		if doc, ok := whole.(map[string]any); ok {
			if list, ok := doc["data"].([]any); ok {
				add(map[string]any{"data": slices.Concat(dataOf(good), list)}, `[null]`)
			}
		}
	}
}

// dataOf returns the objects of a request.
func dataOf(body any) []any {
	doc, _ := body.(map[string]any)
	list, _ := doc["data"].([]any)
	return list
}

// replaceNth replaces the nth value within v, counted from 0 in a fixed order.
func replaceNth(v *any, n *int, by any) bool {
	if *n == 0 {
		*v = by
		return true
	}
	*n--
	switch x := (*v).(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			one := x[key]
			if replaceNth(&one, n, by) {
				x[key] = one
				return true
			}
		}
	case []any:
		for i := range x {
			if replaceNth(&x[i], n, by) {
				return true
			}
		}
	}
	return false
}

// waitsForRun matches a run that Run has not tried yet.
var waitsForRun = regexp.MustCompile(`"state":"staged","state_details":"[^"]*Waiting for the bundle to be assigned`)

// seen is what alice sees of all that she has, after Run has tried all runs. No worker takes them.
func (x subject) seen() string {
	x.t.Helper()
	var all string
	testenv.Await(x.t, "Run has tried all runs", func() bool {
		all = x.get("alice", "/bundles?keywords=.mine&keywords=.limit=10000&include=group_permissions").ok().body
		// A run that was killed before Run tried it keeps its staged_status.
		return !strings.Contains(all, `"state":"created"`) && !waitsForRun.MatchString(all)
	}, &all)
	for _, path := range []string{
		"/worksheets?keywords=.mine&keywords=.limit=10000&include=group_permissions", "/worksheets/" + x.sheet + "?include=items", "/groups", "/user", "/users?keywords=.limit=99",
	} {
		all += "\n" + x.get("alice", path).ok().body
	}
	return strings.ReplaceAll(all, "{", "\n{")
}

// fullRows are requests with all that they may have.
func fullRows() []row {
	bulk := func(kind string, attributes, relationships map[string]any, id string) any {
		return map[string]any{"data": []any{map[string]any{"type": kind, "id": id, "attributes": attributes, "relationships": relationships}}}
	}
	alice := "0x" + strings.Repeat("a", 32)
	return []row{
		{"POST /bundles", [5]int{}, func(s subject) (string, any) {
			return "/bundles?worksheet=" + s.sheet, object("bundles", map[string]any{
				"bundle_type": "run", "command": "x", "metadata": metadata("run", "x", nil),
				"dependencies": []any{map[string]string{"child_path": "in", "parent_uuid": s.data, "parent_path": "y"}},
			})
		}},
		{"PATCH /bundles", [5]int{}, func(s subject) (string, any) {
			return "/bundles", bulk("bundles", map[string]any{
				"metadata": map[string]any{"name": "mine", "description": "x", "tags": []string{"x"}, "license": "x"}, "is_anonymous": true, "frozen": "2026-01-01",
			}, map[string]any{"owner": link("users", alice)}, s.data)
		}},
		{"PATCH /worksheets", [5]int{}, func(s subject) (string, any) {
			return "/worksheets", bulk("worksheets", map[string]any{
				"name": "w" + codalab.NewUUID(), "title": "x", "tags": []string{"x"}, "is_anonymous": true, "frozen": "2026-01-01",
			}, map[string]any{"owner": link("users", alice)}, s.sheet)
		}},
		{"POST /worksheet-items", [5]int{}, func(s subject) (string, any) {
			return "/worksheet-items?replace=1&uuid=" + s.sheet, bulk("worksheet-items", map[string]any{"type": "bundle", "value": "x", "sort_key": 7},
				map[string]any{"bundle": link("bundles", s.data), "worksheet": link("worksheets", s.sheet)}, "")
		}},
		{"POST /worksheets/{uuid}/add-items", [5]int{}, func(s subject) (string, any) {
			return "/worksheets/" + s.sheet + "/add-items", map[string]any{"items": []string{s.data}, "item_type": "bundle", "ids": []int{1}, "after_sort_key": 7}
		}},
		{"PATCH /user", [5]int{}, func(subject) (string, any) {
			return "/user", bulk("users", map[string]any{
				"user_name": "alice", "first_name": "x", "last_name": "x", "affiliation": "x", "url": "http://x", "notifications": 1,
			}, nil, alice)
		}},
		{"POST /workers/{worker}/checkin", [5]int{}, func(s subject) (string, any) {
			group, image := "readers", "x"
			in := codalab.CheckIn{Tag: "x", GroupName: &group, CPUs: 1, Dependencies: [][2]string{{s.data, ""}}, Hostname: "h", Instance: "i"}
			run := reportOf(s.run, codalab.StateRunning)
			run.PinnedReference, run.FailureMessage = &image, &image
			in.Reports = []codalab.RunReport{run}
			return "/workers/w/checkin", in
		}},
	}
}

// TestMalformedRequestsAreRefusedAsAWhole sends requests, in each of which something is wrong, to every
// route that takes a body. None may be an internal error, and a refused one changes nothing.
func TestMalformedRequestsAreRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	rows := slices.DeleteFunc(routeRows(), func(r row) bool {
		return slices.ContainsFunc(fullRows(), func(full row) bool { return full.pattern == r.pattern })
	})
	for _, row := range slices.Concat(rows, fullRows()) {
		method, _, _ := strings.Cut(row.pattern, " ")
		user := "alice"
		if row.statuses[3] >= 400 {
			user = "root"
		}
		if method == http.MethodGet || strings.Contains(row.pattern, "netcurl") || strings.HasPrefix(row.pattern, "PUT /bundles/{uuid}/contents") {
			continue // they take no body, or any
		}
		t.Run(strings.ReplaceAll(row.pattern, "/", "_"), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
			s.makeReaders()
			_, path, bodies := row.malformed(t, s)
			var refused []int
			for i := 0; i < len(bodies); i += 3 { // of 19 or 20 for each place, others for the next one
				a := s.call(user, method, path, bodies[i])
				switch {
				case a.status >= 500:
					t.Errorf("%s: %d %s", short(bodies[i]), a.status, a.body)
				case a.status >= 400:
					refused = append(refused, i)
				case method != http.MethodPost || slices.Contains([]string{"/worksheets", "/groups", "/bundle-actions", "/cli/command"}, path):
					// The subject is not what it was, or its names are taken.
					_, path, bodies = row.malformed(t, s)
				}
			}
			x, path, bodies := row.malformed(t, s)
			before := x.seen()
			for _, i := range refused {
				s.call(user, method, path, bodies[i])
			}
			if after := x.seen(); after != before {
				t.Errorf("%d refused requests changed %s", len(refused), cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")))
			}
			t.Logf("%d of %d requests refused", len(refused), (len(bodies)+2)/3)
		})
	}
}

// malformed returns the path of a request on a new subject, and bodies in which something is wrong.
// Their number and order are always the same.
func (r row) malformed(t *testing.T, s *site) (x subject, path string, bodies []string) {
	t.Helper()
	x = s.subject()
	path, body := r.call(x)
	bodies = hostileBodies()
	if _, text := body.(string); !text {
		_, good := r.call(s.subject())
		bodies = append(bodies, mutants(t, body, good)...)
	}
	return x, path, bodies
}

func short(text string) string { return text[:min(len(text), 600)] }

// An index of PostgreSQL cannot hold long names.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	fits, name := long(255), long(256)
	const says = "A name may have 255 bytes, not 256"
	s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": fits})).ok()
	s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": name})).says(http.StatusBadRequest, says)
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": fits})).ok()
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": name})).says(http.StatusBadRequest, says)
	data := s.create("dataset", fits, "", nil).ok().text("data", 0, "id")
	s.create("dataset", name, "", nil).says(http.StatusBadRequest, says)
	s.call("alice", "PATCH", "/bundles", edit("bundles", data, map[string]any{"metadata": map[string]any{"name": name}})).says(http.StatusBadRequest, says)
	s.call("alice", "PATCH", "/user", edit("users", "", map[string]any{"user_name": name})).says(http.StatusBadRequest, says)
	s.call("bob", "PATCH", "/user", edit("users", "", map[string]any{"user_name": fits})).ok()
	s.create("run", "job", "x", nil, codalab.Dependency{ParentUUID: data, ChildPath: long(1024)}).ok()
	s.create("run", "job", "x", nil, codalab.Dependency{ParentUUID: data, ChildPath: long(1025)}).says(http.StatusBadRequest, "may have 1024 bytes, not 1025")
}

// A worker must be able to report whatever a program wrote.
func TestZeroCharactersAreReplaced(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	run, message := reportOf(uuid, codalab.StateFinalizing), "a\x00b \\u0000"
	run.FailureMessage = &message
	w.told(codalab.MessageMarkFinalized, run)
	if b := s.await(uuid, codalab.StateFailed); b.Metadata.String("failure_message") != "a\ufffdb \\u0000" {
		t.Errorf("%q", b.Metadata["failure_message"])
	}
	s.call("alice", "PUT", "/worksheets/"+s.home("alice")+"/raw", "a\x00b\xff").is(http.StatusNoContent)
	if a := s.get("alice", "/worksheets/"+s.home("alice")+"?include=items").ok(); !strings.Contains(a.body, "a\ufffdb\ufffd") {
		t.Errorf("%s", a.body)
	}
}

// TestMalformedAddressesAreRefused puts hostile texts into the paths and queries of every route.
func TestMalformedAddressesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
	s.makeReaders()
	x := s.subject()
	hostile := []string{"x\x00", "0x\xff", "^1-^3", "name^99999999999", "-1", "%' --", long(5000)}
	for _, row := range routeRows() {
		method, _, _ := strings.Cut(row.pattern, " ")
		path, body := row.call(x)
		path, query, _ := strings.Cut(path, "?")
		segments := strings.Split(path, "/")
		for _, bad := range hostile {
			var all []string
			for i := 2; i < len(segments); i++ {
				one := slices.Clone(segments)
				one[i] = url.PathEscape(bad)
				all = append(all, strings.Join(one, "/")+"?"+query)
			}
			for _, name := range []string{
				"keywords", "specs", "worksheet", "uuid", "include", "filename", "child_uuid", "command", "dependencies", "depth", "head", "after_sort_key",
				"shadow", "detached", "force", "directive", "bundle_uuid", "name", "header_message", "state_on_success", "urls", "replace", "descendants",
			} {
				all = append(all, path+"?"+name+"="+url.QueryEscape(bad)+"&"+query)
			}
			for _, one := range all {
				if a := s.call("alice", method, one, body); a.status >= 500 {
					t.Errorf("%s %s: %d %s", method, short(one), a.status, a.body)
				}
			}
		}
	}
	for _, bad := range hostile {
		for _, form := range []url.Values{{"grant_type": {"password"}, "username": {bad}, "password": {bad}}, {"grant_type": {"refresh_token"}, "refresh_token": {bad}}} {
			if a := s.grant("codalab_cli_client", form); a.status >= 500 {
				t.Errorf("sign-in as %q: %d %s", short(bad), a.status, a.body)
			}
		}
	}
}
