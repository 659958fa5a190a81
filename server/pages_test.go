package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// visitor is a browser that visits the pages of a site.
type visitor struct {
	*site
	cookies []*http.Cookie
}

// browse signs a user in; nobody if the name is empty.
func (s *site) browse(t *testing.T, user string) *visitor {
	t.Helper()
	b := &visitor{site: s}
	if user != "" {
		b.cookies = s.form("/signin", url.Values{"name": {user}, "password": {user}, "next": {"/runs"}}, nil).cookies
		if len(b.cookies) == 0 {
			t.Fatalf("%s cannot sign in", user)
		}
	}
	return b
}

// shows gets a page, which must have a status and contain texts. It returns the page.
func (b *visitor) shows(t *testing.T, path string, status int, texts ...string) string {
	t.Helper()
	resp := b.form(path, nil, nil, b.cookies...)
	page := resp.body
	if resp.status != status {
		t.Fatalf("%s: %d\n%s", path, resp.status, page)
	}
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s does not show %q:\n%s", path, text, page)
		}
	}
	if !strings.Contains(resp.header.Get("Content-Security-Policy"), "script-src 'self';") || resp.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s has the header %v", path, resp.header)
	}
	return page
}

// sends sends a form, and returns the address to which it leads.
func (b *visitor) sends(t *testing.T, path string, fields url.Values) string {
	t.Helper()
	resp := b.form(path, fields, nil, b.cookies...)
	if resp.status != http.StatusSeeOther {
		t.Fatalf("%s: %d\n%s", path, resp.status, resp.body)
	}
	return resp.header.Get("Location")
}

func TestPagesOfAResearcher(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("data", "1,2\n")
	run := s.run("echo '<b>bold</b>' & sleep 1", nil)
	home := s.home("alice")
	s.call("alice", "POST", "/worksheet-items?uuid="+home, object("worksheet-items", map[string]string{"type": "markup", "value": "# Results\n\nA *good* one."})).ok()
	s.call("alice", "POST", "/worksheets/"+home+"/add-items", map[string]any{"items": []string{data}, "item_type": "bundle"}).ok()
	a := s.browse(t, "alice")
	a.shows(t, "/runs", http.StatusOK, "echo &#39;&lt;b&gt;bold&lt;/b&gt;&#39; &amp; sleep 1", `class="state `, "cl search .last .limit=50 .mine type=run", `<button>Sign out</button>`)
	a.shows(t, "/runs?q=.mine", http.StatusOK, ">data</a>", ">job</a>")
	a.shows(t, "/runs?q=.mine+.count", http.StatusOK, "<p>2</p>")
	a.shows(t, "/runs?q=tag%3Dx", http.StatusOK, `role="alert"`)
	a.shows(t, "/runs?q=%22", http.StatusOK, `role="alert"`)
	a.shows(t, "/runs?q=name%3Dnone", http.StatusOK, "No bundle matches.")
	a.shows(t, "/bundles/"+run, http.StatusOK, "A run of alice", "cl run --like "+run, `value="kill"`, "echo &#39;&lt;b&gt;")
	a.shows(t, "/bundles/"+data, http.StatusOK, "A dataset of alice", "1,2")
	a.shows(t, "/worksheets/"+home, http.StatusOK, "<h2>Results</h2>", "<em>good</em>", ">data</a>", "Nobody else may read it.")
	a.shows(t, "/worksheets", http.StatusOK, home)
	a.shows(t, "/queues", http.StatusOK, "No queue serves you.")
	if to := a.sends(t, "/runs/actions", url.Values{"uuid": {run}, "action": {"kill"}, "next": {"/bundles/" + run}}); to != "/bundles/"+run+"?done=kill&n=1" {
		t.Errorf("the way goes on to %s", to)
	}
	if to := a.sends(t, "/runs/actions", url.Values{"uuid": {data}, "action": {"remove"}, "sure": {"yes"}, "next": {"/bundles/" + data}}); to != "/runs" {
		t.Errorf("the way goes on to %s", to)
	}
	a.shows(t, "/bundles/"+data, http.StatusNotFound)
	if to := a.sends(t, "/signout", url.Values{}); to != "/signin" {
		t.Errorf("the way goes on to %s", to)
	}
	a.shows(t, "/runs", http.StatusUnauthorized, "/signin?next=%2fruns")
}

// A person who comes to a wrong address sees a page. A program gets the answer that it had.
func TestUnknownAddressIsAPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.browse(t, "alice")
	a.shows(t, "/nowhere/<b>", http.StatusNotFound, "<header>", "Not found: &#39;/nowhere/&lt;b&gt;&#39;", "<span>alice</span>")
	a.shows(t, "/signout", http.StatusMethodNotAllowed, "<header>", "Method not allowed.")
	for _, path := range []string{"/rest/nowhere", "/static/nowhere", "/rest"} {
		if got := a.form(path, nil, nil, a.cookies...); got.status != http.StatusNotFound || strings.Contains(got.body, "<header>") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// TestProvenanceIsForThoseWhoMayReadTheBundle: the document has the addresses by which its reader has come.
func TestProvenanceIsForThoseWhoMayReadTheBundle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("data", "1,2\n")
	run := s.run("wc in", nil, codalab.Dependency{ChildPath: "in", ParentUUID: data})
	a := s.browse(t, "alice")
	a.shows(t, "/bundles/"+run, http.StatusOK, `href="/bundles/`+run+`/provenance.json"`, "cl rerun --wait "+run)
	page := a.shows(t, "/bundles/"+run+"/provenance.json", http.StatusOK, `"@type": "CreateAction"`, `"description": "wc in"`, "/rest/bundles/"+data+"/contents/blob/")
	if !json.Valid([]byte(page)) || strings.Contains(page, ".invalid") {
		t.Errorf("the document is %s", page)
	}
	s.browse(t, "bob").shows(t, "/bundles/"+run+"/provenance.json", http.StatusNotFound)
	s.browse(t, "").shows(t, "/bundles/"+run+"/provenance.json", http.StatusNotFound)
}

// A page shows nobody what the API does not.
func TestPagesShowWhatTheirReaderMayRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	secret, public := s.upload("secret", "x"), s.upload("open", "y")
	s.share("alice", "bundle", secret, "public", store.PermissionNone)
	s.share("alice", "bundle", public, "public", store.PermissionRead)
	home := s.home("alice")
	for user, may := range map[string]bool{"": false, "bob": false, "alice": true, "root": true} {
		b := s.browse(t, user)
		for path, refused := range map[string]int{
			"/bundles/" + secret: http.StatusNotFound, "/bundles/" + secret + "/files/": http.StatusNotFound, "/bundles/" + secret + "/files/x": http.StatusNotFound,
			"/bundles/" + secret + "/events": http.StatusNotFound, "/worksheets/" + home: http.StatusForbidden,
		} {
			if may {
				refused = http.StatusOK
			}
			if may && strings.HasSuffix(path, "/x") {
				refused = http.StatusNotFound
			}
			if page := b.shows(t, path, refused); !may && strings.Contains(page, "secret</") {
				t.Errorf("%s: %s shows %s", user, path, page)
			}
		}
		b.shows(t, "/bundles/"+public, http.StatusOK, "open")
	}
	b := s.browse(t, "bob")
	if resp := b.form("/runs/actions", url.Values{"uuid": {public}, "action": {"remove"}, "sure": {"yes"}}, nil, b.cookies...); resp.status != http.StatusForbidden {
		t.Errorf("bob removes a bundle of alice: %d", resp.status)
	}
	// Another site's page makes no browser act.
	a := s.browse(t, "alice")
	for _, path := range []string{"/runs/actions", "/signin"} {
		fields := url.Values{"uuid": {public}, "action": {"remove"}, "sure": {"yes"}, "name": {"bob"}, "password": {"bob"}}
		if resp := a.form(path, fields, http.Header{"Sec-Fetch-Site": {"cross-site"}}, a.cookies...); resp.status != http.StatusForbidden {
			t.Errorf("%s from another site: %d", path, resp.status)
		}
	}
	s.get("alice", "/bundles/"+public).ok()
}

// Names, commands, markup and files of users run nothing, load nothing and break no page.
func TestHostileTextsRunNothing(t *testing.T) {
	t.Parallel()
	const script = `"><script>alert(1)</script><img src=x onerror=alert(1)>`
	s := newSite(t)
	home := s.home("alice")
	s.run(script+"\u202e", nil)
	s.call("alice", "PATCH", "/worksheets", map[string]any{"data": []any{map[string]any{"type": "worksheets", "id": home, "attributes": map[string]any{"title": script}}}}).ok()
	for _, markup := range []string{
		script, "[x](javascript:alert(1))", "![x](javascript:alert(1))", "<iframe src=//evil.example></iframe>", "<form action=//evil.example><input name=password></form>",
		"<style>body{display:none}</style>", "<a href='data:text/html,<script>alert(1)</script>'>x</a>", "<div style='position:fixed;inset:0' onclick=alert(1)>x</div>",
		"<svg><script>alert(1)</script></svg>", "<base href=//evil.example>", "<meta http-equiv=refresh content=0>", "<button hx-post=/runs/actions hx-trigger=load>x</button>",
		"<b hx-get=/signout hx-trigger=load data-hx-get=/x>x</b>", strings.Repeat("<div>", 2000), strings.Repeat("> ", 500) + "x", "$$" + script + "$$",
	} {
		s.call("alice", "POST", "/worksheet-items?uuid="+home, object("worksheet-items", map[string]string{"type": "markup", "value": markup})).ok()
	}
	a := s.browse(t, "alice")
	for _, path := range []string{"/runs", "/worksheets/" + home, "/worksheets?q=" + url.QueryEscape(script), "/runs?q=" + url.QueryEscape(script), "/signin?next=" + url.QueryEscape(script), "/bundles/" + url.PathEscape(script)} {
		checkHarmless(t, path, a.form(path, nil, nil, a.cookies...).body)
	}
}

// checkHarmless fails for a page with anything in it that is not its own.
func checkHarmless(t *testing.T, path, page string) {
	t.Helper()
	tokens := html.NewTokenizer(strings.NewReader(page))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			token := tokens.Token()
			own := map[string]bool{}
			for _, a := range token.Attr {
				own[a.Key+"="+a.Val] = true
				address := a.Key == "href" || a.Key == "src" || a.Key == "action"
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || address && (strings.Contains(a.Val, ":") || strings.HasPrefix(a.Val, "//")) && a.Key != "href" ||
					a.Key == "href" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") && !strings.HasPrefix(a.Val, "http") ||
					strings.Contains(a.Key, "hx-") && a.Val != "sse" {
					t.Errorf("%s has %s", path, token)
				}
			}
			switch token.Data {
			case "iframe", "object", "embed", "base", "style", "svg", "input", "form", "button":
				if token.Data == "iframe" || token.Data == "object" || token.Data == "embed" || token.Data == "base" || token.Data == "style" || token.Data == "svg" {
					t.Errorf("%s has %s", path, token)
				}
			case "script":
				if !slices.ContainsFunc(token.Attr, func(a html.Attribute) bool { return a.Key == "src" && strings.HasPrefix(a.Val, "/static/") }) {
					t.Errorf("%s has %s", path, token)
				}
			}
		case html.TextToken, html.EndTagToken, html.CommentToken, html.DoctypeToken:
		}
	}
}

// A link on another site, or a picture in a text, acts on nothing in its reader's name.
func TestAddressesInTextsActOnNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	run := s.run("serve", nil)
	a := s.browse(t, "alice")
	picture := http.Header{"Sec-Fetch-Dest": {"image"}, "Sec-Fetch-Site": {"same-origin"}}
	if got := a.form("/rest/account/logout", nil, picture, a.cookies...); got.status != http.StatusForbidden || len(got.cookies) > 0 {
		t.Errorf("a picture signs out: %d %v", got.status, got.cookies)
	}
	port := "/rest/bundles/" + run + "/netcurl/80/delete"
	for name, test := range map[string]struct {
		header http.Header
		proof  bool
	}{
		"by hand":      {http.Header{"Sec-Fetch-Site": {"none"}, "Sec-Fetch-Dest": {"document"}}, true},
		"a link here":  {http.Header{"Sec-Fetch-Dest": {"document"}}, true},
		"a picture":    {picture, false},
		"another site": {http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Dest": {"document"}}, false},
		"unknown":      {http.Header{"Sec-Fetch-Site": nil}, false},
	} {
		got := a.form(port, nil, test.header, a.cookies...)
		if proof := strings.Contains(got.body, "bundle not running"); got.status != http.StatusForbidden || proof != test.proof || proof == strings.Contains(got.body, "not signed in") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if got := a.form("/rest/user", nil, nil, a.cookies...); got.header.Get("Cache-Control") != "private, no-store" {
		t.Errorf("an answer by cookie has the header %v", got.header)
	}
}

// What a page gives to copy is one command, whatever the words in it are.
func TestLinesToCopyAreQuoted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.browse(t, "alice")
	a.shows(t, "/runs?q="+url.QueryEscape("name=$(date) .mine"), http.StatusOK, "<code>cl search .last .limit=50 &#39;name=$(date)&#39; .mine</code>")
	a.shows(t, "/worksheets?q="+url.QueryEscape("a;b"), http.StatusOK, "<code>cl wsearch .limit=100 &#39;a;b&#39;</code>")
	a.shows(t, "/runs?q=.mine&page=2", http.StatusOK, "<code>cl search .last .limit=50 .offset=100 .mine</code>")
	if page := a.shows(t, "/runs?q=.mine&done=Your+password+has+expired&n=1", http.StatusOK); strings.Contains(page, "expired") {
		t.Errorf("the page says what its address says: %s", page)
	}
}

// tree adds a dataset with these files.
func (s *site) tree(t *testing.T, files map[string]string) string {
	t.Helper()
	uuid := s.dataset("tree")
	s.put(uuid, "filename=tree.tar.gz&unpack=1", tarGz(t, files)).ok()
	return uuid
}

// Files of all kinds have pages, whatever is in them and in their names.
func TestPagesOfFiles(t *testing.T) {
	t.Parallel()
	const script = "<script>alert(1)</script>"
	const evil = "\"><script>\n\u202eexe.txt"
	s := newSite(t)
	uuid := s.tree(t, map[string]string{
		"a.py": "import os # " + script, "a.html": script, "a.svg": "<svg xmlns='http://www.w3.org/2000/svg'>" + script + "</svg>", "a.pdf": "%PDF-1.4", "b.pdf": script, "b.csv": "\x00\xff,\n",
		"a.csv": "a,b\n" + script + ",\"2,\n3\"\n", "wide.csv": strings.Repeat("a,", 150_000) + "a\n1,2\n", "long.txt": strings.Repeat("x", 270<<10), evil: "text " + script, "dir/x": "",
		"metrics.jsonl": "{\"step\": 1, \"loss\": 3, \"</script><script>alert(1)\": 1}\n{\"step\": 2, \"loss\": 2, \"</script><script>alert(1)\": 2}\n",
		"a.ipynb":       `{"cells": [{"cell_type": "markdown", "source": "*em* $x^2$ [x](javascript:alert(1)) ` + script + `<svg onload=x>"}, {"cell_type": "code", "source": "import os", "outputs": [{"data": {"text/html": "` + script + `"}}, {"data": {"image/png": "iVBORw0KGgo="}}]}]}`,
		"deep.json":     strings.Repeat("[", 100_000), "deep.jsonl": strings.Repeat("[", 70_000),
	})
	a := s.browse(t, "alice")
	at := "/bundles/" + uuid + "/files/"
	for path, texts := range map[string][]string{
		"":                   {"<bdi>dir</bdi>/</a>", `\u202eexe.txt</bdi>`, ">tree</a>"},
		"a.py":               {`<span class="code-keyword">import </span>`, "cl cat " + uuid + "/a.py"},
		"a.html":             {"&lt;/"},
		"a.svg":              {`<img src="/rest/bundles/` + uuid + `/contents/blob/a.svg"`},
		"a.pdf":              {`A PDF. <a href="/bundles/` + uuid + `/pdf/a.pdf"`},
		"b.pdf":              {"&lt;script&gt;"},
		"b.csv":              {"It is no text."},
		"a.csv":              {`<th scope="col">b</th>`, "<td>2,\n3</td>", "&lt;script&gt;"},
		"wide.csv":           {"Its first 0 rows and 64 of "},
		"long.txt":           {"The first 262144 bytes of its text are shown."},
		url.PathEscape(evil): {"text &lt;script&gt;"},
		"metrics.jsonl":      {`<th scope="row"><bdi>loss</bdi></th>`, `"name":"loss","x":[1,2],"y":[3,2]`, "Numbers over step"},
		"a.ipynb":            {`<em>em</em> <span class="math">$x^2$</span>`, "&lt;script&gt;", `<img src="data:image/png;base64,iVBORw0KGgo="`},
		"deep.json":          {"[[[["},
		"deep.jsonl":         {"[[[["},
	} {
		page := a.shows(t, at+path, http.StatusOK, texts...)
		checkHarmless(t, path, strings.NewReplacer(`src="data:image/png;base64,iVBORw0KGgo="`, "", `<script type="application/json">`, "").Replace(page))
	}
	checkHarmless(t, "bundle", strings.ReplaceAll(a.shows(t, "/bundles/"+uuid, http.StatusOK, "Curves of", "metrics.jsonl"), `<script type="application/json">`, ""))
	a.shows(t, at+"none", http.StatusNotFound)
	got := a.form("/rest/bundles/"+uuid+"/contents/blob/a.html", nil, nil, a.cookies...)
	if got.header.Get("Content-Security-Policy") != "sandbox" {
		t.Errorf("a file is sent with %v", got.header)
	}
}

// A directory is shown by pages.
func TestPagesOfADirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.store.ChangeUser(t.Context(), alicesID, func(u *store.User) error { u.DiskQuota = 1 << 40; return nil })
	must(t, err)
	files := map[string]string{}
	for i := range 1003 {
		files[fmt.Sprintf("d/f%04d", i)] = ""
	}
	uuid := s.tree(t, files)
	a := s.browse(t, "alice")
	page := a.shows(t, "/bundles/"+uuid+"/files/d", http.StatusOK, "f0000", "f0999", "1000 of 1003 entries.", `/files/d?after=f0999">Next</a>`, "cl cat "+uuid+"/d</code>")
	a.shows(t, "/bundles/"+uuid+"/files/", http.StatusOK, "cl cat "+uuid+"</code>")
	if strings.Contains(page, "f1000") {
		t.Error("the page has more than its entries")
	}
	if page = a.shows(t, "/bundles/"+uuid+"/files/d?after=f0999", http.StatusOK, "f1000", "f1002", "3 of 1003 entries."); strings.Contains(page, "Next") {
		t.Error("the last page has a next one")
	}
	s.get("alice", "/bundles/"+uuid+"/contents/info/d?first=x").is(http.StatusBadRequest)
}

// Scripts and styles are sent compressed to browsers that take that.
func TestAssetsAreCompressed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, zipped := range map[string]bool{"/static/katex/katex.min.js": true, "/static/style.css": true, "/static/katex/fonts/KaTeX_Main-Regular.woff2": false} {
		got := s.form(path, nil, http.Header{"Accept-Encoding": {"gzip"}})
		if (got.header.Get("Content-Encoding") == "gzip") != zipped || got.status != http.StatusOK || got.header.Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", path, got.status, got.header)
		}
		if plain := s.form(path, nil, nil); plain.header.Get("Content-Encoding") != "" || zipped && len(plain.body) <= len(got.body) {
			t.Errorf("%s: %d bytes, %v", path, len(plain.body), plain.header)
		}
	}
	if got := s.form("/static/none.js", nil, http.Header{"Accept-Encoding": {"gzip"}}); got.status != http.StatusNotFound {
		t.Errorf("no script: %d", got.status)
	}
}

// The curves of a log follow the run that writes it.
func TestCurvesFollowARun(t *testing.T) {
	t.Parallel()
	s, w, run := claimedRun(t)
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(text), 0o600))
	}
	write("{\"loss\": 3}\n{\"loss\": 2}\n{\"lo")
	report := codalab.RunReport{UUID: run, State: codalab.StateRunning}
	w.checkIn(report)
	w.serve(t, dir, report)
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	a := s.browse(t, "alice")
	a.shows(t, "/bundles/"+run, http.StatusOK, "Curves of", "events?log=metrics.jsonl")
	a.shows(t, "/bundles/"+run+"/files/metrics.jsonl", http.StatusOK, "events?alone&amp;log=metrics.jsonl", `"y":[3,2]`)
	stream := a.opens(t, web.URL, "/bundles/"+run+"/events?alone&log=metrics.jsonl")
	if got := stream.next("curves"); !strings.Contains(got, `"y":[3,2]`) {
		t.Errorf("the curves are %s", got)
	}
	write("{\"loss\": 3}\n{\"loss\": 2}\n{\"loss\": 1}\n")
	if got := stream.next("curves"); !strings.Contains(got, `"y":[3,2,1]`) {
		t.Errorf("the curves are %s", got)
	}
	if got := stream.next("numbers"); !strings.Contains(got, ">loss<") {
		t.Errorf("the table is %s", got)
	}
	write("{\"loss\": 7}\n{\"loss\": 8}\n")
	if got := stream.next("curves"); !strings.Contains(got, `"y":[7,8]`) {
		t.Errorf("the curves of a log that begins anew are %s", got)
	}
}
