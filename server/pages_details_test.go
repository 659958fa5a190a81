package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// A run that has not begun says for which inputs it waits, in the words of cl info.
func TestRunNamesTheInputsForWhichItWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.dataset("live")
	run := s.run("cat d", nil, codalab.Dependency{ChildPath: "d", ParentUUID: data})
	a := s.browse(t, "alice")
	waits := `Waiting for its inputs: <a href="/bundles/` + data + `">live</a>, which is uploading.`
	a.shows(t, "/runs", http.StatusOK, waits)
	a.shows(t, "/bundles/"+run, http.StatusOK, waits)
}

// Addresses with the name of a worksheet lead to those with its uuid.
func TestNamesOfWorksheetsLeadToThem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, home := s.browse(t, "alice"), s.home("alice")
	for _, rest := range []string{"", "?first=2", "/edit", "/settings?done=", "/export.zip"} {
		got := a.form("/worksheets/home-alice"+rest, nil, nil, a.cookies...)
		if to := got.header.Get("Location"); got.status != http.StatusSeeOther || to != "/worksheets/"+home+rest {
			t.Errorf("/worksheets/home-alice%s: %d %s", rest, got.status, to)
		}
	}
	if to := a.form("/sweeps/home-alice", nil, nil, a.cookies...).header.Get("Location"); to != "/sweeps/"+home {
		t.Errorf("a sweep: %s", to)
	}
	a.shows(t, "/worksheets/nowhere/settings", http.StatusNotFound)
}

// What is the visitor's own asks who that is.
func TestPagesOfOnesOwnAskForASignIn(t *testing.T) {
	t.Parallel()
	b := newSite(t).browse(t, "")
	for _, path := range []string{"/runs", "/runs/new", "/sweeps", "/queues"} {
		b.shows(t, path, http.StatusUnauthorized, "Sign in to see this page")
	}
}

// The page of a run leads to its output once there is some.
func TestOutputThatIsNotThereHasNoLink(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	run := s.run("true", nil)
	a := s.browse(t, "alice")
	if page := a.shows(t, "/bundles/"+run, http.StatusOK, "<h2>stdout</h2>"); strings.Contains(page, "All of it") {
		t.Errorf("the page leads to a file that is not there: %s", page)
	}
	s.put(run, "filename=x.tar.gz&unpack=1", tarGz(t, map[string]string{"stdout": "done"})).ok()
	page := a.shows(t, "/bundles/"+run, http.StatusOK, `<a href="/bundles/`+run+`/files/stdout">All of it</a>`)
	if strings.Contains(page, "/files/stderr") {
		t.Errorf("the page leads to a file that is not there: %s", page)
	}
}

// The page of a bundle says first what it is for and who may read it, and has its metadata in the words of cl info.
func TestPageOfABundleIsInTheWordsOfInfo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", strings.Repeat("x", 3000))
	s.patch("alice", "bundles", uuid, map[string]any{"bundle_type": "dataset", "metadata": map[string]any{"description": "Hand-made.\nTwice.", "tags": []string{"old", "<b>"}}}).ok()
	a := s.browse(t, "alice")
	page := a.shows(t, "/bundles/"+uuid, http.StatusOK, "Readable and changeable only by you.", `<p class="description">Hand-made.`, "<p>Tags: old &lt;b&gt;</p>",
		"<dt>tags</dt><dd>old &lt;b&gt;</dd>", " UTC</dd>", "<dt>data_size</dt><dd>2.9k</dd>")
	if strings.Contains(page, "<dt>description</dt>") || strings.Contains(page, "<dt>name</dt>") {
		t.Errorf("the page says it twice: %s", page)
	}
	s.share("alice", "bundle", uuid, "public", 1)
	s.browse(t, "").shows(t, "/bundles/"+uuid, http.StatusOK, "Readable by everybody, also without a login; changeable only by alice.")
}
