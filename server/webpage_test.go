package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// page is CodaLab's web page in a browser, as far as the server sees it: it sends the cookies, and no token.
type page struct {
	*site
	cookies []*http.Cookie
}

// openPage signs a user in by the page's form.
func (s *site) openPage(user string) page {
	s.t.Helper()
	return page{s, s.signInBrowser(user).cookies}
}

// visit sends a form, or gets an address if there are no fields, and returns the status and the headers of the answer.
func (s *site) visit(path string, fields url.Values, cookies ...*http.Cookie) (int, http.Header) {
	s.t.Helper()
	resp := s.form(path, fields, nil, cookies...)
	return resp.status, resp.header
}

// send sends a request of the page's scripts (frontend/src/util/apiWrapper.js). A body that is no text becomes JSON.
func (p page) send(method, path string, body any) answer {
	p.t.Helper()
	r := p.request("", method, path, body)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Accept", "application/json, text/plain, */*")
	for _, c := range p.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return answer{p.t, method + " " + path, w.Code, w.Header(), w.Body.String()}
}

// command executes a command line of the page on a worksheet; empty for none.
func (p page) command(worksheet, line string) answer {
	p.t.Helper()
	in := map[string]any{"worksheet_uuid": nil, "command": line}
	if worksheet != "" {
		in["worksheet_uuid"] = worksheet
	}
	return p.send("POST", "/cli/command", in)
}

// TestPageWorksOnABundle replays what the page calls from a new worksheet to the end of a run.
func TestPageWorksOnABundle(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = 1 })
	s.setQuota(1<<30, 1<<40)
	p := s.openPage("alice")
	if got := p.send("GET", "/user", nil).ok().text("data", "attributes", "user_name"); got != "alice" {
		t.Errorf("the user is %q", got)
	}

	// NavBar.js: createNewWorksheet
	made := p.command("", "new alice-page").ok()
	sheet := made.text("structured_result", "ui_actions", 0, 1)
	if made.text("structured_result", "ui_actions", 0, 0) != "openWorksheet" || made.text("output") != sheet+"\n" {
		t.Errorf("new answers %s", made.body)
	}

	// NewUpload.jsx: uploadFiles
	data := p.send("POST", "/bundles?worksheet="+sheet, map[string]any{"data": []any{map[string]any{"type": "bundles", "attributes": map[string]any{
		"bundle_type": "dataset", "metadata": map[string]any{"description": "", "license": "", "name": "a.txt", "source_url": "", "tags": []string{}},
	}}}}).ok().text("data", 0, "id")
	p.send("PUT", "/bundles/"+data+"/contents/blob/?finalize_on_failure=1&filename=a.txt&unpack=0", "hello\n").ok()

	// NewRun.jsx: getCommand, as buildTerminalCommand quotes it
	run := strings.Fields(p.command(sheet, `run '-a 3' --name=first --description= '--tags='\''x'\'','\''y z'\' --request-memory=1g --request-cpus=1 --request-docker-image=debian:12 --request-queue=none --request-network in:`+data+` 'cat in && echo '\''it'\''\'\'\''s'\' --exclude-patterns '*.tmp'`).ok().text("output"))[0] // a warning of the queue comes after it
	b := s.bundle("alice", run)
	want := codalab.Metadata{"name": "first", "tags": []any{"x", "y z"}, "request_memory": "1g", "request_docker_image": "debian:12", "request_network": true, "exclude_patterns": []any{"*.tmp"}}
	for key, value := range want {
		if diff := cmp.Diff(value, b.Metadata[key]); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
	if *b.Command != `cat in && echo 'it'\''s'` || len(b.Dependencies) != 1 || b.Dependencies[0].ChildPath != "in" || b.Dependencies[0].ParentUUID != data {
		t.Errorf("the run is %q with %+v", *b.Command, b.Dependencies)
	}

	// Worksheet.js: fetch and handleSelectedBundleCommand; the page joins no option as nothing
	p.send("GET", "/interpret/worksheet/"+sheet+"?brief=1", nil).ok()
	if got := p.command(sheet, "kill  "+run).ok().text("output"); got != run+"\n" {
		t.Errorf("kill prints %q", got)
	}
	p.send("POST", "/worksheets/"+sheet+"/raw", "# Title\n[dataset a.txt]{"+data+"}\n").is(http.StatusNoContent)
	p.command(sheet, "rm --force "+run).ok()
	s.get("alice", "/bundles/"+run).is(http.StatusNotFound)

	// CodalabApp.js: signout
	s.visit("/rest/account/logout?redirect_uri=/", nil, p.cookies...)
	p.send("GET", "/user", nil).is(http.StatusUnauthorized)
}

// TestPageShowsABundle has what BundleDetail.jsx reads.
func TestPageShowsABundle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	run := s.run("date", map[string]any{"request_queue": "none"})
	p := s.openPage("alice")
	path := "/bundles/" + run + "?include_display_metadata=1&include=owner%2Cgroup_permissions%2Chost_worksheets"
	a := p.send("GET", path, nil).ok()
	var doc struct {
		Data struct {
			Meta struct {
				Editable     []string          `json:"editable_metadata_keys"`
				Types        map[string]string `json:"metadata_type"`
				Descriptions map[string]string `json:"metadata_descriptions"`
			} `json:"meta"`
			Relationships map[string]any `json:"relationships"`
		} `json:"data"`
	}
	must(t, json.Unmarshal([]byte(a.body), &doc))
	meta := doc.Data.Meta
	for key, want := range map[string]string{
		"name": "str", "tags": "list", "created": "date", "data_size": "size", "request_memory": "str", "request_time": "str", "request_cpus": "int", "time": "duration", "memory_max": "size", "request_network": "bool", "exitcode": "int",
	} {
		if meta.Types[key] != want || meta.Descriptions[key] == "" {
			t.Errorf("%s is %q: %q", key, meta.Types[key], meta.Descriptions[key])
		}
	}
	has := func(key string) bool { return strings.Contains(strings.Join(meta.Editable, " ")+" ", key+" ") }
	if !has("name") || !has("request_memory") || has("created") || has("run_status") {
		t.Errorf("%v can be edited", meta.Editable)
	}
	for _, name := range []string{"owner", "group_permissions", "host_worksheets"} {
		if doc.Data.Relationships[name] == nil {
			t.Errorf("no %s", name)
		}
	}
	// The page reads the object's meta of a bundle that the user may not read, too.
	s.call("alice", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": run})).ok()
	s.await(run, codalab.StateKilled)
	must(t, json.Unmarshal([]byte(p.send("GET", path, nil).ok().body), &doc))
	if meta = doc.Data.Meta; has("request_memory") || !has("name") {
		t.Errorf("after the end, %v can be edited", meta.Editable)
	}
	if a := p.send("GET", "/bundles/"+run, nil).ok(); strings.Contains(a.body, "editable_metadata_keys") {
		t.Errorf("nobody asked for %s", a.body)
	}
	p.send("GET", "/bundles/"+run+"/locations/", nil).ok()
	p.send("GET", "/bundle_stores/0x1", nil).is(http.StatusNotFound)
}

// TestPageSearches has the searches of the search field (NavBar.js) and of the dashboard (MainPanel.js, SideBar.js).
func TestPageSearches(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("date", map[string]any{"request_queue": "none"})
	p := s.openPage("alice")
	for _, state := range []string{"uploading", "created", "staged", "making", "starting", "preparing", "running", "finalizing", "ready", "failed", "killed", "worker_offline"} {
		p.send("POST", "/interpret/search", map[string]any{"keywords": []string{"owner=alice", ".count", "state=" + state}}).ok()
	}
	a := p.send("POST", "/interpret/search", map[string]any{"keywords": []string{"owner=alice", ".count", ".floating"}}).ok()
	if n, _ := a.value("response", "result").(float64); n != 0 {
		t.Errorf("there are %v", n)
	}
	if list, _ := p.send("POST", "/interpret/search", map[string]any{"keywords": []string{".mine"}}).ok().value("response", "result").([]any); len(list) != 1 {
		t.Errorf("the bundles are %v", list)
	}
	for _, words := range [][]string{{"owner=alice", ".limit=100"}, {"home-alice"}} {
		a := p.send("POST", "/interpret/wsearch", map[string]any{"keywords": words}).ok()
		if a.text("response", 0, "name") != "home-alice" || a.text("response", 0, "owner_name") != "alice" {
			t.Errorf("%v finds %s", words, a.body)
		}
	}
	if a := p.send("POST", "/interpret/wsearch", map[string]any{"keywords": []string{".shared", ".notmine", ".limit=100"}}).ok(); !strings.Contains(a.body, `"response":[]`) {
		t.Errorf("shared are %s", a.body)
	}
	p.send("POST", "/interpret/search", map[string]any{}).says(http.StatusBadRequest, "Missing `keywords`")
	s.home("root")
	if a := s.get("", "/worksheets/sample/").ok(); !strings.HasPrefix(a.body, "[") {
		t.Errorf("the samples are %s", a.body)
	}
}

// TestPageSharesByCommands has those of PermissionDialog.js, which reads the names of groups from the third line of gls on.
func TestPageSharesByCommands(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.makeReaders()
	data, sheet := s.upload("a.txt", "x"), s.home("alice")
	p := s.openPage("alice")
	lines := strings.Split(p.command("", "gls").ok().text("output"), "\n")
	if len(lines) < 4 || !strings.HasPrefix(lines[1], "----") || strings.Fields(lines[2])[0] != "readers" && strings.Fields(lines[3])[0] != "readers" {
		t.Errorf("gls prints %q", lines)
	}
	p.command("", "perm "+data+" readers read").ok()
	s.get("carol", "/bundles/"+data).ok()
	p.command("", "perm "+data+" readers none").ok()
	s.get("carol", "/bundles/"+data).is(http.StatusNotFound)
	p.command("", "wperm "+sheet+" readers read").ok()
	s.get("carol", "/worksheets/"+sheet).ok()
	p.command("", "wperm "+sheet+" you read").says(http.StatusNotFound, "you")
}

// TestPageKeepsAPicture has the picture of a user (EditableAvatar.js: submitAvatar; NavBar.js: fetchImg).
func TestPageKeepsAPicture(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.openPage("alice")
	made := p.send("POST", "/bundles?detached=1", map[string]any{"data": []any{map[string]any{"type": "bundles", "attributes": map[string]any{
		"bundle_type": "dataset", "metadata": map[string]any{"description": "", "license": "", "name": "alice.JPG", "source_url": "", "tags": []string{}},
	}}}}).ok().text("data", 0, "id")
	p.send("PUT", "/bundles/"+made+"/contents/blob/?finalize_on_failure=1&filename=alice.JPG&unpack=0", "picture").ok()
	set := func(id string) answer {
		return p.send("PATCH", "/user", map[string]any{"data": map[string]any{"id": alicesID, "type": "users", "attributes": map[string]any{"avatar_id": id}}})
	}
	set(made).ok()
	if got := p.send("GET", "/user", nil).ok().text("data", "attributes", "avatar_id"); got != made {
		t.Errorf("the picture is %q", got)
	}
	if got := s.get("bob", "/users/alice").ok().text("data", "attributes", "avatar_id"); got != made {
		t.Errorf("others see the picture %q", got)
	}
	if got := p.send("GET", "/bundles/"+made+"/contents/blob/", nil).ok().body; got != "picture" {
		t.Errorf("the picture has %q", got)
	}
	set("../../account/logout?").says(http.StatusBadRequest, "uuid of a bundle")
	set("").ok()
	if a := p.send("GET", "/user", nil).ok(); a.value("data", "attributes", "avatar_id") != nil {
		t.Errorf("without a picture: %s", a.body)
	}
}

// TestTerminalOpensAndOffers has the commands of the terminal that the page does not send by itself.
func TestTerminalOpensAndOffers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b, sheet := s.upload("a.txt", "x"), s.upload("b.txt", "y"), s.home("alice")
	p := s.openPage("alice")
	opened := p.command(sheet, "info a.txt "+b).ok()
	for i, uuid := range []string{a, b} {
		if opened.text("structured_result", "ui_actions", i, 0) != "openBundle" || opened.text("structured_result", "ui_actions", i, 1) != uuid {
			t.Errorf("info opens %s", opened.body)
		}
	}
	s.share("alice", "worksheet", sheet, "public", store.PermissionRead)
	found := p.command("", "wls home-alice").ok()
	if lines := strings.Split(found.text("output"), "\n"); len(lines) != 4 || strings.Join(strings.Fields(lines[2]), " ") != sheet[:8]+" home-alice alice public:read" ||
		found.text("structured_result", "refs", sheet[:8], "uuid") != sheet || found.text("structured_result", "refs", sheet[:8], "type") != "worksheet" {
		t.Errorf("wls answers %s", found.body)
	}
	if got := p.command("", "wls name=nosuch").ok().text("output"); got != "No worksheets found.\n" {
		t.Errorf("wls of none prints %q", got)
	}
	given := p.command(sheet, "chown bob a.txt").ok().text("output")
	if !strings.HasPrefix(given, a+"\nOffered to bob") || s.owner(a) != alicesID {
		t.Errorf("chown prints %q, and the owner is %s", given, s.owner(a))
	}
	if got := s.openPage("bob").command("", "chown bob "+a).ok().text("output"); got != a+"\n" || s.owner(a) != bobsID {
		t.Errorf("chown of the receiver prints %q, and the owner is %s", got, s.owner(a))
	}
	p.command(sheet, "chown nobody b.txt").is(http.StatusNotFound)
}

// TestWarningsOfARunAreBehindASharp: when a run is repeated, the page puts what run prints into an address as it is
// (BundleActions.jsx: handleSubmitRerun).
func TestWarningsOfARunAreBehindASharp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.openPage("alice")
	printed := p.command(s.home("alice"), "run --request-queue=none date").ok().text("output")
	lines := strings.Split(printed, "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[1], "# ") {
		t.Fatalf("run prints %q", printed)
	}
	// Browsers leave the ends of lines out.
	address, err := url.Parse("/worksheets/0x1?bundle=" + strings.ReplaceAll(printed, "\n", "") + "&focus=1")
	if err != nil || address.Query().Get("bundle") != lines[0] {
		t.Errorf("the page opens %q: %v", address, err)
	}
}

// TestPageShowsRefusals: the page shows the first element pre of a refusal, which has the sentence without any markup of the
// user; a program gets plain text.
func TestPageShowsRefusals(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.openPage("alice")
	a := p.command("", "<script>alert(1)</script>")
	a.says(http.StatusBadRequest, "<pre>The web page has no command &#39;&lt;script&gt;alert(1)&lt;/script&gt;&#39;. It has help, run, ")
	if kind := a.header.Get("Content-Type"); kind != "text/html; charset=utf-8" || a.header.Get("Content-Security-Policy") != "default-src 'none'" {
		t.Errorf("%s with %v", kind, a.header)
	}
	// A reader who has not signed in has no cookie.
	page{site: s}.command("", "ls").says(http.StatusUnauthorized, "<pre>User is not authenticated.</pre>")
	if a := s.call("alice", "POST", "/cli/command", map[string]any{"command": "mount"}); a.header.Get("Content-Type") != "text/plain; charset=utf-8" || strings.Contains(a.body, "<") {
		t.Errorf("a program gets %q", a.body)
	}
}

// TestCommandsAreTheirUsersAlone: a command may do what its user may, and needs the proof of a request of the server's own page.
func TestCommandsAreTheirUsersAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("a.txt", "x")
	sheet := s.home("alice")
	bob := s.openPage("bob")
	for line, status := range map[string]int{
		"rm --force " + data:             http.StatusNotFound,
		"perm " + data + " public all":   http.StatusNotFound,
		"wperm " + sheet + " public all": http.StatusForbidden,
		"run :" + data + " 'cat x'":      http.StatusNotFound,
		"ls":                             http.StatusForbidden,
		"ufarewell alice":                http.StatusBadRequest,
	} {
		if a := bob.command(sheet, line); a.status != status {
			t.Errorf("%s: %d %s, want %d", line, a.status, a.body, status)
		}
	}
	bob.command(sheet, "run date").is(http.StatusForbidden)
	s.bundle("alice", data)

	alice := s.openPage("alice")
	r := s.request("", "POST", "/cli/command", map[string]any{"command": "rm --force " + data})
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	for _, c := range alice.cookies {
		r.AddCookie(c)
	}
	s.send(r).is(http.StatusForbidden)
	s.call("", "POST", "/cli/command", map[string]any{"command": "help"}).is(http.StatusUnauthorized)
	s.bundle("alice", data)
	alice.command("", "rm "+data).ok()
}

// TestCommandsAreBounded has what a command line cannot do.
func TestCommandsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.share("alice", "worksheet", s.home("alice"), "public", store.PermissionRead)
	p := s.openPage("alice")
	for line, sentence := range map[string]string{
		"upload /etc/passwd":                   "no command",
		"cl run --upload /etc 'cat passwd'":    "no option --upload",
		"cat /etc/passwd":                      "no command",
		"info /etc/passwd":                     "Invalid bundle_spec",
		"chown bob":                            "used as chown <user> <bundle>...",
		"kil x":                                "did you mean kill?",
		"kill":                                 "used as kill <bundle>...",
		"run 'x":                               "No closing quotation",
		"run --request-cpus=many date":         "--request-cpus must be a whole number",
		"run date; rm -rf /":                   "no option",
		"perm x y":                             "used as perm",
		"perm x public write":                  "Invalid permission",
		"run :a/../../x date":                  "leads out of the bundle",
		"wperm " + s.home("alice") + " public": "used as wperm",
	} {
		a := p.command(s.home("alice"), line)
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(sentence)) {
			t.Errorf("%s: %d %s", line, a.status, a.body)
		}
	}
	if a := p.command("", "help").ok(); !strings.Contains(a.text("output"), "kill ") {
		t.Errorf("help prints %s", a.body)
	}
	p.command("", "").ok()
	p.command("", "run date").says(http.StatusBadRequest, "open one")
	a := p.send("POST", "/cli/command", map[string]any{"worksheet_uuid": nil, "command": "ki", "autocomplete": true}).ok()
	if list, ok := a.value("completions").([]any); !ok || len(list) != 0 {
		t.Errorf("the completions are %s", a.body)
	}
	p.send("POST", "/cli/command", map[string]any{"command": []string{"cl", "work", "/"}}).ok()
	p.send("POST", "/cli/command", map[string]any{"command": 1}).is(http.StatusBadRequest)
	p.send("POST", "/cli/command", map[string]any{}).says(http.StatusBadRequest, "Missing `command`")
}

// TestPageAsksForAccounts: the page's forms come back with a sentence.
func TestPageAsksForAccounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.RequireSignIn = true })
	for path, want := range map[string]string{
		"/rest/account/signup": "/account/signup?error=The+operator", "/rest/account/reset": "/account/reset?error=Ask+the+operator", "/rest/account/changeemail": "/account/changeemail?error=Ask+the+operator",
	} {
		status, header := s.visit(path, url.Values{"email": {"a@example.org"}})
		if to := header.Get("Location"); status != http.StatusSeeOther || !strings.HasPrefix(to, want) {
			t.Errorf("%s: %d to %q", path, status, to)
		}
	}
	if status, header := s.visit("/rest/account/css", nil); status != http.StatusOK || header.Get("Content-Type") != "text/css; charset=utf-8" {
		t.Errorf("the style is %d %v", status, header)
	}
}
