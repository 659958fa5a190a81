package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// onceOf is the token of the first form of a page that acts once.
func onceOf(t *testing.T, page string) string {
	t.Helper()
	m := regexp.MustCompile(`name="once" value="([0-9a-fx]{34})"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no form that acts once:\n%s", page)
	}
	return m[1]
}

// A form that is sent twice acts once, and the second answer is the first one's. Another page's form acts anew.
func TestFormSentTwiceActsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	run, other := s.run("train", map[string]any{"name": "first"}), s.run("train", map[string]any{"name": "second"})
	a := s.browse(t, "alice")
	twice := func(page, path string, fields url.Values) string {
		t.Helper()
		fields.Set("once", onceOf(t, a.shows(t, page, http.StatusOK)))
		to := a.sends(t, path, fields)
		if again := a.sends(t, path, fields); again != to {
			t.Errorf("%s leads to %s, and then to %s", path, to, again)
		}
		return to
	}
	rerun := func(uuid ...string) url.Values {
		return url.Values{"uuid": uuid, "action": {"rerun"}, "next": {"/runs"}}
	}
	count := func(name, want string) {
		t.Helper()
		a.shows(t, "/runs?q=.count+name%3D"+name, http.StatusOK, "<p>"+want+"</p>")
	}
	twice("/runs", "/runs/actions", rerun(run))
	count("first", "2")
	twice("/runs", "/runs/actions", rerun(run))
	count("first", "3")
	changed := rerun(run, other)
	changed.Set("once", onceOf(t, a.shows(t, "/runs", http.StatusOK)))
	a.sends(t, "/runs/actions", changed)
	changed.Set("uuid", other) // the same page, another choice
	a.sends(t, "/runs/actions", changed)
	count("first", "4")
	count("second", "3")
	sheet := twice("/worksheets", "/worksheets", url.Values{"name": {"paper"}})
	a.shows(t, sheet, http.StatusOK)
	settings := strings.TrimSuffix(sheet, "/edit") + "/settings"
	twice(settings, settings, url.Values{"action": {"delete"}, "sure": {"yes"}})
	twice("/bundles/"+run, "/runs/actions", url.Values{"uuid": {run}, "action": {"remove"}, "sure": {"yes"}, "next": {"/bundles/" + run}})

	// What was refused may be sent again.
	wrong := url.Values{"name": {"home-bob"}, "once": {onceOf(t, a.shows(t, "/worksheets", http.StatusOK))}}
	for range 2 {
		if got := a.form("/worksheets", wrong, nil, a.cookies...); got.status != http.StatusBadRequest {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	// Another user's form is another one.
	b, bobs := s.browse(t, "bob"), url.Values{"name": {"mine"}, "once": {codalab.NewUUID()}}
	a.sends(t, "/worksheets", bobs)
	if got := b.form("/worksheets", bobs, nil, b.cookies...); got.status != http.StatusBadRequest {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// The browser leaves the first of two clicks. Both are there at a time, and make one run.
func TestTwoClicksAtATimeMakeOneRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	run := s.run("train", map[string]any{"name": "first"})
	a := s.browse(t, "alice")
	fields := url.Values{"uuid": {run}, "action": {"rerun"}, "next": {"/runs"}, "once": {onceOf(t, a.shows(t, "/runs", http.StatusOK))}}
	click := func(ctx context.Context) int {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/runs/actions", strings.NewReader(fields.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, c := range a.cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w.Code
	}
	const clicks = 8
	left, leave := context.WithCancel(t.Context())
	codes := make(chan int, clicks)
	for i := range clicks {
		ctx := t.Context()
		if i%2 == 0 {
			ctx = left
		}
		go func() { codes <- click(ctx) }()
	}
	leave()
	seen := 0
	for range clicks {
		if code := testenv.Receive(t, "the answer to a click", codes); code == http.StatusSeeOther {
			seen++
		}
	}
	if seen < clicks/2 {
		t.Errorf("%d of %d clicks lead on", seen, clicks)
	}
	a.shows(t, "/runs?q=name%3Dfirst+.count", http.StatusOK, "<p>2</p>")
}

// What can run again does, also if something else cannot.
func TestRunsThatCannotRunAgainAreNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("data", "1")
	run := s.run("train", map[string]any{"name": "good"})
	orphan := s.run("train", map[string]any{"name": "orphan"}, codalab.Dependency{ChildPath: "d", ParentUUID: data})
	gone := codalab.NewUUID()
	s.call("alice", http.MethodDelete, "/bundles?force=1", map[string]any{"data": []any{map[string]string{"type": "bundles", "id": data}}}).ok()
	set := s.call("alice", http.MethodPost, "/bundles?worksheet="+s.home("alice"), object("bundles", map[string]any{"bundle_type": codalab.TypeDataset, "metadata": metadata(codalab.TypeDataset, "numbers", nil)})).ok().text("data", 0, "id")
	a := s.browse(t, "alice")
	fields := url.Values{"uuid": {gone, run, orphan, set, run}, "action": {"rerun"}, "next": {"/runs?q=.mine"}, "once": {onceOf(t, a.shows(t, "/runs", http.StatusOK))}}
	for range 2 { // sent twice, too
		got := a.form("/runs/actions", fields, nil, a.cookies...)
		if got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
		hasTexts(t, got.body, "1 bundle will run again.", "<code>"+gone+"</code>", "you may not read it", ">orphan</a></th><td>", ">numbers</a></th><td>It is no run", `href="/runs?q=.mine"`)
	}
	a.shows(t, "/runs?q=name%3Dgood+.count", http.StatusOK, "<p>2</p>")
	a.shows(t, "/runs?q=name%3Dorphan+.count", http.StatusOK, "<p>1</p>")
}

// An action on many bundles takes those that it can, also if something else has ended, is needed, or is another's.
func TestActionsTakeTheBundlesThatTheyCan(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("data", "1")
	needs := s.run("train", map[string]any{"name": "needs"}, codalab.Dependency{ChildPath: "d", ParentUUID: data})
	free := []string{s.run("train", map[string]any{"name": "free"}), s.run("train", map[string]any{"name": "free"}), s.run("train", map[string]any{"name": "free"})}
	gone := codalab.NewUUID()
	a := s.browse(t, "alice")
	act := func(action string, uuids ...string) browserReply {
		t.Helper()
		fields := url.Values{"uuid": uuids, "action": {action}, "sure": {"yes"}, "next": {"/runs?q=.mine"}, "once": {onceOf(t, a.shows(t, "/runs", http.StatusOK))}}
		return a.form("/runs/actions", fields, nil, a.cookies...)
	}
	got := act("kill", free[0], data, free[1], gone, needs, free[2])
	if got.status != http.StatusOK {
		t.Fatalf("kill: %d %s", got.status, got.body)
	}
	hasTexts(t, got.body, "4 bundles will be killed.", "Not these 2", "<code>"+gone+"</code>", ">data</a></th><td>Cannot execute this action", `href="/runs?q=.mine"`)
	a.shows(t, "/runs?q=state%3Dkilled+.count", http.StatusOK, "<p>4</p>")

	if got := act("kill", data, gone); got.status != http.StatusBadRequest {
		t.Errorf("kill what cannot be killed: %d", got.status)
	} else {
		hasTexts(t, got.body, "Nothing was done.", "Not these 2")
	}

	got = act("remove", free[0], data, gone)
	if got.status != http.StatusOK {
		t.Fatalf("remove: %d %s", got.status, got.body)
	}
	hasTexts(t, got.body, "1 bundle removed.", ">data</a></th><td>", "needs")
	a.shows(t, "/runs?q=name%3Dfree+.count", http.StatusOK, "<p>2</p>")
	if got := act("remove", needs, data); got.status != http.StatusSeeOther { // what needs it goes, too
		t.Errorf("remove both: %d %s", got.status, got.body)
	}
}

// Whatever the order in which a page lists them, all go that nothing else needs, and the reason names what stays.
func TestRemoveTakesAChainInAnyOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kept := s.upload("kept", "2")
	other := s.run("train", map[string]any{"name": "other"}, codalab.Dependency{ChildPath: "d", ParentUUID: kept})
	a := s.browse(t, "alice")
	for _, newestFirst := range []bool{false, true} {
		chain := []string{s.upload("chain0", "1")}
		for i := range 6 {
			chain = append(chain, s.run("train", map[string]any{"name": fmt.Sprintf("chain%d", i+1)}, codalab.Dependency{ChildPath: "d", ParentUUID: chain[i]}))
		}
		a.sends(t, "/runs/actions", url.Values{"uuid": chain[1:], "action": {"kill"}, "next": {"/runs"}, "once": {codalab.NewUUID()}})
		if chain = append(chain, kept); newestFirst {
			slices.Reverse(chain)
		}
		got := a.form("/runs/actions", url.Values{"uuid": chain, "action": {"remove"}, "sure": {"yes"}, "next": {"/runs"}, "once": {codalab.NewUUID()}}, nil, a.cookies...)
		if got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
		hasTexts(t, got.body, "7 bundles removed.", "Not this one", ">kept</a></th><td>", other)
		if strings.Contains(got.body, ">chain") {
			t.Errorf("newest first %t: %s", newestFirst, got.body)
		}
	}
}

func TestFormOfTooManyBundlesIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.browse(t, "alice")
	uuids := make([]string, 1001)
	for i := range uuids {
		uuids[i] = strconv.Itoa(i)
	}
	for _, action := range []string{"kill", "remove"} {
		fields := url.Values{"uuid": uuids, "action": {action}, "next": {"/runs"}, "once": {codalab.NewUUID()}}
		got := a.form("/runs/actions", fields, nil, a.cookies...)
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, "at most 1000 bundles") {
			t.Errorf("%s: %d %.1000s", action, got.status, got.body)
		}
		fields["uuid"] = uuids[:1000]
		fields.Set("sure", "yes")
		got = a.form("/runs/actions", fields, nil, a.cookies...)
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, "Not these 1000") || len(got.body) > 500_000 {
			t.Errorf("%s: %d, %d bytes: %.1000s", action, got.status, len(got.body), got.body)
		}
	}
}

// Remove asks first, and says what will go.
func TestRemoveAsksFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data, gone := s.upload("numbers", "12345"), codalab.NewUUID()
	a := s.browse(t, "alice")
	fields := url.Values{"uuid": {data, gone}, "action": {"remove"}, "next": {"/bundles/" + data}}
	got := a.form("/runs/actions", fields, nil, a.cookies...)
	if got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	hasTexts(t, got.body, "These 2 bundles will be deleted for good", ">numbers</a>", "<li>1 more</li>", `name="uuid" value="`+data+`"`, `name="sure" value="yes"`,
		`href="/bundles/`+data+`">Keep</a>`, "cl rm "+data+" "+gone+"</code>")
	a.shows(t, "/bundles/"+data, http.StatusOK)
	fields.Set("next", "//evil.example/x")
	if got := a.form("/runs/actions", fields, nil, a.cookies...); strings.Contains(got.body, "evil") {
		t.Errorf("it leads to another site: %s", got.body)
	}
}

// A list begins with the newest bundles, and its columns sort it.
func TestRunsBeginWithTheNewest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const all = 53
	for i := range all {
		s.run("train", map[string]any{"name": fmt.Sprintf("run%02d", i)})
	}
	a := s.browse(t, "alice")
	names := func(page string) (list []string) {
		for _, m := range regexp.MustCompile(`>(run\d\d)</a></th>`).FindAllStringSubmatch(page, -1) {
			list = append(list, m[1])
		}
		return list
	}
	first := a.shows(t, "/runs", http.StatusOK, ">older</a>", `aria-sort="descending"><a href="/runs?q=.mine&#43;type%3Drun&#43;created%3D.sort">Made</a>`)
	if got := names(first); len(got) != 50 || got[0] != "run52" || got[49] != "run03" {
		t.Errorf("the first page has %v", got)
	}
	if got := names(a.shows(t, "/runs?page=1", http.StatusOK, ">newer</a>")); len(got) != 3 || got[2] != "run00" {
		t.Errorf("the page of older ones has %v", got)
	}
	for _, key := range []string{"name", "state", "data_size", "created"} {
		up, down := url.QueryEscape(".mine "+key+"=.sort"), url.QueryEscape(".mine "+key+"=.sort-")
		a.shows(t, "/runs?q="+up, http.StatusOK, `aria-sort="ascending"><a href="/runs?q=`+strings.ReplaceAll(down, "+", "&#43;")+`">`)
		a.shows(t, "/runs?q="+down, http.StatusOK, `aria-sort="descending"><a href="/runs?q=`+strings.ReplaceAll(up, "+", "&#43;")+`">`)
	}
	if got := names(a.shows(t, "/runs?q=name%3D.sort", http.StatusOK)); len(got) == 0 || got[0] != "run00" {
		t.Errorf("sorted by name: %v", got)
	}
}
