package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// tagOf is the tag that an editor's form has.
func tagOf(t *testing.T, page string) string {
	t.Helper()
	m := regexp.MustCompile(`name="tag" value="&#34;([0-9a-f]{64})&#34;"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the editor has no tag:\n%s", page)
	}
	return `"` + m[1] + `"`
}

// saves sends an editor's form, and returns the page that comes back with this status.
func (b *visitor) saves(t *testing.T, sheet, tag, text, action string, status int) string {
	t.Helper()
	resp := b.form("/worksheets/"+sheet+"/edit", url.Values{"tag": {tag}, "text": {text}, "action": {action}}, nil, b.cookies...)
	if resp.status != status {
		t.Fatalf("the save of %q: %d\n%s", text, resp.status, resp.body)
	}
	return resp.body
}

func hasTexts(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not show %q:\n%s", text, page)
		}
	}
}

func TestWorksheetIsWrittenInTheBrowser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("numbers", "x")
	a := s.browse(t, "alice")
	to := a.sends(t, "/worksheets", url.Values{"name": {"paper"}})
	sheet := strings.TrimSuffix(strings.TrimPrefix(to, "/worksheets/"), "/edit")
	page := a.shows(t, to, http.StatusOK, "<textarea", "cl wedit "+sheet, "/static/editor.js")
	text := "\n## Data\r\n\r\n[]{" + data[:12] + "}\r\n// a note\r\n% display table name state\r\n[]{" + data + "}  \r\n"
	preview := a.form("/worksheets/"+sheet+"/preview", url.Values{"text": {text}}, nil, a.cookies...)
	hasTexts(t, preview.body, "<h2>Data</h2>", ">numbers</a>", `<th scope="col">state</th>`)
	if strings.Contains(preview.body, "<html") || strings.Contains(preview.body, "Line ") {
		t.Errorf("the preview is %s", preview.body)
	}
	hasTexts(t, a.saves(t, sheet, tagOf(t, page), text, "preview", http.StatusOK), "<h2>Data</h2>", "data-unsaved")
	if page := a.shows(t, "/worksheets/"+sheet, http.StatusOK); strings.Contains(page, "Data") {
		t.Errorf("a preview has saved:\n%s", page)
	}
	a.saves(t, sheet, tagOf(t, page), text, "save", http.StatusSeeOther)
	if got := a.form("/worksheets/paper", nil, nil, a.cookies...); got.header.Get("Location") != "/worksheets/"+sheet {
		t.Errorf("the name leads to %v", got)
	}
	a.shows(t, "/worksheets/nowhere", http.StatusNotFound)
	a.shows(t, "/worksheets/"+sheet, http.StatusOK, "<h2>Data</h2>", ">numbers</a>", "/edit\">Edit</a>")
	page = a.shows(t, to, http.StatusOK, "## Data\n\n[dataset numbers]{"+data+"}\n// a note\n% display table name state\n[dataset numbers]{"+data+"}</textarea>")

	// Blanks at the end of a line break it.
	a.saves(t, sheet, tagOf(t, page), "first  \r\nsecond\r\n", "save", http.StatusSeeOther)
	a.shows(t, "/worksheets/"+sheet, http.StatusOK, "first<br>\nsecond")
	page = a.shows(t, to, http.StatusOK, "\nfirst  \nsecond</textarea>")
	a.saves(t, sheet, tagOf(t, page), text, "save", http.StatusSeeOther)
	page = a.shows(t, to, http.StatusOK)

	// A text that cannot be saved stays in the form, and its mistakes are told with their lines.
	wrong := "a\n[]{0x0000000000000000000000000000dead}\n[]{nothing}\n{{nowhere}}\n% display &#34;"
	broken := a.saves(t, sheet, tagOf(t, page), strings.ReplaceAll(wrong, "&#34;", `"`), "save", http.StatusNotFound)
	hasTexts(t, broken, "Nothing was saved.", wrong+"</textarea>", "Line 2: There is no bundle 0x0000000000000000000000000000dead", "Line 3: ", "Line 4: ", "Line 5: ")

	// Others neither see the text nor change it.
	b := s.browse(t, "bob")
	b.shows(t, to, http.StatusForbidden)
	s.share("alice", "worksheet", sheet, "public", store.PermissionRead)
	b.shows(t, to, http.StatusForbidden)
	b.shows(t, "/worksheets/"+sheet+"/settings", http.StatusForbidden)
	hasTexts(t, b.saves(t, sheet, tagOf(t, page), "mine", "save", http.StatusForbidden), "mine</textarea>")
	a.shows(t, "/worksheets/"+sheet, http.StatusOK, "Data")
	if got := a.form(to, url.Values{"text": {"x"}}, http.Header{"Sec-Fetch-Site": {"cross-site"}}, a.cookies...); got.status != http.StatusForbidden {
		t.Errorf("another site's page saves: %d", got.status)
	}
}

// Who saves second is told, loses nothing, and can save over the other's text knowingly.
func TestSecondOfTwoTabsIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home := s.home("alice")
	first, second := s.browse(t, "alice"), s.browse(t, "alice")
	edit := "/worksheets/" + home + "/edit"
	tag := tagOf(t, first.shows(t, edit, http.StatusOK))
	if other := tagOf(t, second.shows(t, edit, http.StatusOK)); other != tag {
		t.Fatalf("tags %s and %s", tag, other)
	}
	first.saves(t, home, tag, "from the first", "save", http.StatusSeeOther)
	first.saves(t, home, tag, "from the first", "save", http.StatusSeeOther) // a second click
	told := second.saves(t, home, tag, "from the second", "save", http.StatusConflict)
	hasTexts(t, told, "has changed since you opened it", "from the second</textarea>", "-from the first\n&#43;from the second", "data-unsaved", "It was changed by you in another window or by a program, or by the root user.")
	second.shows(t, "/worksheets/"+home, http.StatusOK, "from the first")
	second.saves(t, home, tagOf(t, told), "from the second", "save", http.StatusSeeOther)
	second.shows(t, "/worksheets/"+home, http.StatusOK, "from the second")
	second.saves(t, home, "", "without a tag", "save", http.StatusConflict)

	// A bundle that comes to the worksheet meanwhile counts, too.
	tag = tagOf(t, first.shows(t, edit, http.StatusOK))
	data := s.upload("late", "x")
	s.call("alice", "POST", "/worksheets/"+home+"/add-items", map[string]any{"items": []string{data}, "item_type": "bundle"}).ok()
	hasTexts(t, first.saves(t, home, tag, "", "save", http.StatusConflict), "-[dataset late]{"+data+"}")
}

func TestSettingsOfAWorksheet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, nobody := s.browse(t, "alice"), s.browse(t, "")
	sheet := strings.TrimSuffix(strings.TrimPrefix(a.sends(t, "/worksheets", url.Values{"name": {"draft"}}), "/worksheets/"), "/edit")
	settings := "/worksheets/" + sheet + "/settings"
	change := func(fields ...string) {
		t.Helper()
		form := url.Values{}
		for i := 0; i < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		a.shows(t, a.sends(t, settings, form), http.StatusOK, `role="status"`)
	}
	refused := func(status int, want string, form url.Values) {
		t.Helper()
		got := a.form(settings, form, nil, a.cookies...)
		if got.status != status {
			t.Errorf("%v: %d\n%s", form, got.status, got.body)
		}
		hasTexts(t, got.body, want)
	}
	nobody.shows(t, "/worksheets/"+sheet, http.StatusForbidden)
	change("action", "permit", "group", "public", "permission", "read")
	nobody.shows(t, "/worksheets/"+sheet, http.StatusOK, "May be read by public.")
	a.shows(t, settings, http.StatusOK, "cl wperm "+sheet+" public read", `<th scope="row">public</th><td>read</td>`)
	change("action", "permit", "group", "public", "permission", "none")
	nobody.shows(t, "/worksheets/"+sheet, http.StatusForbidden)
	change("action", "describe", "name", "paper", "title", "A <b>paper</b>", "tags", "one  two")
	a.shows(t, settings, http.StatusOK, `value="one two"`, "--tags one two", "A &lt;b&gt;paper&lt;/b&gt;")
	refused(http.StatusBadRequest, `role="alert"`, url.Values{"action": {"describe"}, "name": {"home-bob"}})
	refused(http.StatusBadRequest, "no permission", url.Values{"action": {"permit"}, "group": {"public"}, "permission": {"write"}})
	refused(http.StatusBadRequest, "no action", url.Values{"action": {"x"}})
	change("action", "freeze")
	a.shows(t, "/worksheets/"+sheet+"/edit", http.StatusForbidden, "frozen")
	a.shows(t, settings, http.StatusOK, "Unfreeze", "cl wedit "+sheet+" --unfreeze")
	change("action", "unfreeze")
	a.shows(t, "/worksheets/"+sheet+"/edit", http.StatusOK)
	refused(http.StatusBadRequest, "sure", url.Values{"action": {"delete"}})
	if to := a.sends(t, settings, url.Values{"action": {"delete"}, "sure": {"yes"}}); to != "/worksheets" {
		t.Errorf("the way goes on to %s", to)
	}
	a.shows(t, "/worksheets/"+sheet, http.StatusForbidden)
}

// A large worksheet comes in parts. Each is bounded, and a table that goes on in the next part keeps its columns.
func TestWorksheetOfTenThousandItemsComesInParts(t *testing.T) {
	t.Parallel()
	const all, most = 10_000, 1000
	s := newSite(t)
	home, data := s.home("alice"), s.upload("numbers", "x")
	items := []store.Item{
		{Type: codalab.ItemDirective, Value: "schema mine"},
		{Type: codalab.ItemDirective, Value: "add what name"},
		{Type: codalab.ItemMarkup, Value: "# Results"},
		{Type: codalab.ItemDirective, Value: "display table mine"},
	}
	for len(items) < 2500 {
		items = append(items, store.Item{Type: codalab.ItemBundle, BundleUUID: &data})
	}
	for len(items) < all {
		items = append(items, store.Item{Type: codalab.ItemMarkup, Value: fmt.Sprintf("line %d", len(items))})
	}
	must(t, s.store.ReplaceItems(t.Context(), home, items, store.Time{Time: time.Now()}))
	a := s.browse(t, "alice")
	rows := 0
	for first := 0; first < all; first += most {
		path := fmt.Sprintf("/worksheets/%s?first=%d", home, first)
		page := a.shows(t, path, http.StatusOK)
		n := strings.Count(page, "<tr><td>")
		rows += n
		if n > most || len(page) > 300_000 {
			t.Errorf("%s has %d rows and %d bytes", path, n, len(page))
		}
		if n > 0 && !strings.Contains(page, `<thead><tr><th scope="col">what</th></tr></thead>`) {
			t.Errorf("%s has another table:\n%.2000s", path, page)
		}
		if next := fmt.Sprintf(`href="/worksheets/%s?first=%d"`, home, first+most); strings.Contains(page, next) != (first+most < all) {
			t.Errorf("%s leads on wrongly", path)
		}
	}
	if rows != 2496 {
		t.Errorf("%d rows", rows)
	}
	a.shows(t, "/worksheets/"+home+"?first=9000", http.StatusOK, "line 9000", "line 9999")
	for _, odd := range []string{"10000", "999999999999999999999", "-1", "x"} {
		a.shows(t, "/worksheets/"+home+"?first="+odd, http.StatusOK)
	}
	begun := a.shows(t, "/worksheets/"+home+"/edit", http.StatusOK, "line 9999</textarea>", "The preview shows the first 200 items.")
	if len(begun) > 1_000_000 {
		t.Errorf("the editor has %d bytes", len(begun))
	}
}

// A part of a worksheet does not end within a text: a list goes on behind the item at which parts end otherwise.
func TestPartsOfAWorksheetEndBehindTexts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home, data := s.home("alice"), s.upload("numbers", "x")
	var items []store.Item
	for len(items) < 998 {
		items = append(items, store.Item{Type: codalab.ItemBundle, BundleUUID: &data})
	}
	for _, line := range []string{"1. one", "2. two", "", "3. three"} {
		items = append(items, store.Item{Type: codalab.ItemMarkup, Value: line})
	}
	items = append(items, store.Item{Type: codalab.ItemBundle, BundleUUID: &data})
	must(t, s.store.ReplaceItems(t.Context(), home, items, store.Time{Time: time.Now()}))
	a := s.browse(t, "alice")
	a.shows(t, "/worksheets/"+home, http.StatusOK, "three", fmt.Sprintf(`href="/worksheets/%s?first=1002"`, home))
	if last := a.shows(t, "/worksheets/"+home+"?first=1002", http.StatusOK); strings.Contains(last, "three") || strings.Count(last, "<tr><td>") != 1 {
		t.Errorf("the last part is not the last bundle alone:\n%s", last)
	}
}

// The page of people is for root alone, and does what root may do.
func TestPeopleAreForRoot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.upload("numbers", "x")
	for _, user := range []string{"", "alice"} {
		b, want := s.browse(t, user), http.StatusForbidden
		if page := b.shows(t, "/people", want); strings.Contains(page, "bob") {
			t.Errorf("%q sees %s", user, page)
		}
		if page := b.shows(t, "/worksheets", http.StatusOK); strings.Contains(page, "/people") {
			t.Errorf("%q is led to people: %s", user, page)
		}
		if got := b.form("/people", url.Values{"action": {"quota"}, "user": {"alice"}, "disk": {"1t"}}, nil, b.cookies...); got.status != http.StatusForbidden {
			t.Errorf("%q changes a quota: %d", user, got.status)
		}
	}
	r := s.browse(t, "root")
	page := r.shows(t, "/people", http.StatusOK, `<a href="/people">People</a>`, ">alice</a>", ">bob</a>", "cl uls .limit=500 disk_used=.sort-</code>")
	if strings.Index(page, ">alice</a>") > strings.Index(page, ">bob</a>") { // she alone has contents
		t.Errorf("the largest is not the first: %s", page)
	}
	if page := r.shows(t, "/people?q=user_name%3Dbob", http.StatusOK, "1 user with", ">bob</a>", `value="user_name=bob"`); strings.Contains(page, ">alice</a>") {
		t.Errorf("a search for bob finds %s", page)
	}
	r.shows(t, "/people?q=%22", http.StatusOK, `role="alert"`, "No user matches.")
	r.shows(t, "/people?q=nothing%3Dx", http.StatusOK, `role="alert"`)
	r.shows(t, "/people?q=.count", http.StatusOK, `role="alert"`, "ask for a number: ")
	change := func(status int, want string, fields url.Values) {
		t.Helper()
		got := r.form("/people", fields, nil, r.cookies...)
		if got.status != status {
			t.Errorf("%v: %d\n%s", fields, got.status, got.body)
		}
		if status == http.StatusSeeOther {
			got.body = r.shows(t, got.header.Get("Location"), http.StatusOK, `role="status"`)
		}
		hasTexts(t, got.body, want)
	}
	change(http.StatusSeeOther, "<td class=\"number\">3g</td>", url.Values{"action": {"quota"}, "user": {"alice"}, "disk": {"3g"}, "time": {"2d"}, "runs": {"7"}})
	r.shows(t, "/people", http.StatusOK, ">2d0h</td>", ">7</td>")
	for _, wrong := range []url.Values{{"disk": {"x"}}, {"time": {"x"}}, {"runs": {"-1"}}, {"user": {"nobody"}, "disk": {"1g"}}} {
		wrong.Set("action", "quota")
		status := http.StatusBadRequest
		if wrong.Has("user") {
			status = http.StatusNotFound
		}
		change(status, `role="alert"`, wrong)
	}
	change(http.StatusSeeOther, `<th scope="row">lab</th><td>root</td>`, url.Values{"action": {"group"}, "name": {"lab"}})
	group := regexp.MustCompile(`<option value="(0x[0-9a-f]+)">lab<`).FindStringSubmatch(r.shows(t, "/people", http.StatusOK))
	if group == nil {
		t.Fatal("the group has no id")
	}
	change(http.StatusSeeOther, "<td>alice </td></tr>", url.Values{"action": {"add"}, "group": {group[1]}, "user": {"alice"}})
	change(http.StatusSeeOther, "<td></td></tr>", url.Values{"action": {"remove"}, "group": {group[1]}, "user": {"alice"}})
	change(http.StatusBadRequest, "no action", url.Values{"action": {"x"}})
}

// A link to a worksheet that its editor may not read stays one, and tags may have blanks.
func TestSaveKeepsWhatItsEditorMayNotRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home, bobs := s.home("alice"), s.home("bob")
	must(t, s.store.ReplaceItems(t.Context(), home, []store.Item{{Type: codalab.ItemWorksheet, Subworksheet: &bobs}}, store.Time{Time: time.Now()}))
	a := s.browse(t, "alice")
	page := a.shows(t, "/worksheets/"+home+"/edit", http.StatusOK)
	a.saves(t, home, tagOf(t, page), "new text\n[worksheet ]{{"+bobs+"}}\n", "save", http.StatusSeeOther)
	items, err := s.store.Items(t.Context(), home)
	must(t, err)
	if len(items) != 2 || items[1].Subworksheet == nil || *items[1].Subworksheet != bobs {
		t.Errorf("the worksheet has %+v", items)
	}
	if to := a.sends(t, "/worksheets/"+home+"/settings", url.Values{"action": {"describe"}, "name": {"home-alice"}, "title": {"t"}, "tags": {"'my tag' b"}}); !strings.Contains(to, "done") {
		t.Errorf("the way goes on to %s", to)
	}
	a.shows(t, "/worksheets/"+home+"/settings", http.StatusOK, `value="&#39;my tag&#39; b"`)
	for tag, want := range map[string]int{`""`: http.StatusPreconditionFailed, "a, b": http.StatusPreconditionFailed, "*": http.StatusNoContent, `W/"00"`: http.StatusPreconditionFailed} {
		r := s.request("alice", http.MethodPut, "/worksheets/"+home+"/raw", "by "+tag)
		r.Header.Set("If-Match", tag)
		if got := s.send(r); got.status != want {
			t.Errorf("If-Match: %s: %d %s", tag, got.status, got.body)
		}
	}
}

// A block of a worksheet leaves a trace for each reader, also if its file does not exist, or is not for this one.
func TestBlocksOfMissingFilesAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data, empty := s.upload("numbers", "1\t2\n3\t4\n"), s.upload("empty", "")
	home := s.home("alice")
	text := ""
	for _, display := range []string{"image /no.png", "image /", "contents /no.txt", "graph / xlabel=epoch ylabel=loss"} {
		text += "% display " + display + "\n[]{" + data + "}\n\n"
	}
	text += "% display contents /\n[]{" + empty + "}\n\n% display graph /\n[]{" + empty + "}\n"
	a := s.browse(t, "alice")
	a.saves(t, home, tagOf(t, a.shows(t, "/worksheets/"+home+"/edit", http.StatusOK)), text, "save", http.StatusSeeOther)
	page := a.shows(t, "/worksheets/"+home, http.StatusOK, "(no such file)</pre><figcaption><a href=\"/bundles/"+data+"/files/no.png\">",
		"(no lines to show)", "There is nothing to draw of", `<p class="x">epoch</p>`, "<p>loss</p>", `src="/rest/bundles/`+data+`/contents/blob/"`)
	if n := strings.Count(page, "<img"); n != 1 {
		t.Errorf("there are %d images:\n%s", n, page)
	}
	s.share("alice", "worksheet", home, "public", store.PermissionRead)
	b := s.browse(t, "bob")
	if page := b.shows(t, "/worksheets/"+home, http.StatusOK, "You do not have sufficient permissions to read this file."); strings.Contains(page, "<img") {
		t.Errorf("another reader gets an image:\n%s", page)
	}
}
