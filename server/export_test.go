package server_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/export"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// TestWorksheetIsExportedFromItsPage: the archive has what its reader may read, and a page of which nothing runs.
func TestWorksheetIsExportedFromItsPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	picture, secret := s.upload("p.png", "PNG"), s.upload("secret", "hidden")
	waits := s.run("sleep 1", nil)
	home := s.home("alice")
	text := "# Results\n\n<script>alert(1)</script>\n\n![p](/rest/bundles/" + picture + "/contents/blob/) [run](/bundles/" + waits + ") [x](javascript:alert(1))"
	s.call("alice", "POST", "/worksheet-items?uuid="+home, object("worksheet-items", map[string]string{"type": "markup", "value": text})).ok()
	s.call("alice", "POST", "/worksheets/"+home+"/add-items", map[string]any{"items": []string{picture, secret, waits}, "item_type": "bundle"}).ok()
	address := "/worksheets/" + home + "/export.zip"
	s.browse(t, "alice").shows(t, "/worksheets/"+home, http.StatusOK, `href="`+address+`"`, "cl export "+home)
	s.browse(t, "bob").shows(t, address, http.StatusForbidden)
	s.share("alice", "worksheet", home, "public", store.PermissionRead)
	s.share("alice", "bundle", picture, "public", store.PermissionRead)
	s.share("alice", "bundle", secret, "public", store.PermissionNone)
	s.browse(t, "").shows(t, "/worksheets/x%2F..%2Fy/export.zip", http.StatusNotFound)
	reply := s.form(address, nil, nil, s.browse(t, "bob").cookies...)
	if reply.status != http.StatusOK || !strings.HasPrefix(reply.header.Get("Content-Disposition"), `attachment; filename="home-alice.zip"`) {
		t.Fatalf("%d %v", reply.status, reply.header)
	}
	in := strings.NewReader(reply.body)
	a, err := export.Open(in, in.Size())
	if err == nil {
		err = a.Verify(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left := a.LeftOut(); len(left) != 2 || left[0].UUID != secret || left[0].Metadata != nil || strings.Contains(reply.body, "hidden") {
		t.Errorf("left out are %+v", left)
	}
	z, err := zip.NewReader(in, in.Size())
	if err != nil {
		t.Fatal(err)
	}
	page := entryOf(t, z, "index.html")
	for _, want := range []string{"<h2>Results</h2>", `<img src="contents/` + picture + `/p.png" alt="p"`, `href="http://example.com/bundles/` + waits + `"`, `id="` + secret + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s:\n%s", want, page)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "javascript:") {
		t.Errorf("the page runs something:\n%s", page)
	}
	if got := entryOf(t, z, "contents/"+picture+"/p.png"); got != "PNG" {
		t.Errorf("the picture is %q", got)
	}
	if crate := entryOf(t, z, "ro-crate-metadata.json"); !strings.Contains(crate, `"@id": "contents/`+picture+`/p.png"`) {
		t.Errorf("the crate is %s", crate)
	}
}

// TestArchivesPageShowsFormulasAndInputs: the page runs KaTeX, which it has, and nothing else; only if it needs it.
func TestArchivesPageShowsFormulasAndInputs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	input := s.upload("data", "x")
	s.run("cat x", nil, codalab.Dependency{ChildPath: "x", ParentUUID: input}, codalab.Dependency{ChildPath: "y", ParentUUID: input})
	home := s.home("alice")
	page := func() string {
		reply := s.form("/worksheets/"+home+"/export.zip", nil, nil, s.browse(t, "alice").cookies...)
		z, err := zip.NewReader(strings.NewReader(reply.body), int64(len(reply.body)))
		must(t, err)
		return entryOf(t, z, "index.html")
	}
	plain := page()
	for _, want := range []string{`<div>x: <a href="#` + input + `">data</a></div><div>y: <a href`, `">job</a></div></td>`} {
		if !strings.Contains(plain, want) {
			t.Errorf("the page has no %s:\n%s", want, plain)
		}
	}
	if strings.Contains(plain, "<script") || strings.Contains(plain, "script-src") || len(plain) > 20_000 {
		t.Errorf("a page of %d bytes has a script:\n%.3000s", len(plain), plain)
	}
	s.call("alice", "POST", "/worksheet-items?uuid="+home, object("worksheet-items", map[string]string{"type": "markup", "value": "$x^2</script>$"})).ok()
	shown := page()
	_, rest, _ := strings.Cut(shown, "<script>")
	script, rest, ended := strings.Cut(rest, "</script>")
	digest := sha256.Sum256([]byte(script))
	if !ended || strings.Contains(rest, "<script") || len(shown) > 320_000 {
		t.Errorf("the page of %d bytes has more than one script, or none", len(shown))
	}
	if want := "default-src 'none'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'; style-src"; !strings.Contains(html.UnescapeString(shown), want) {
		t.Errorf("the page has no %s:\n%.1000s", want, shown)
	}
	for _, want := range []string{`<span class="math">$x^2&lt;/script&gt;$</span>`} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

// TestWorksheetOverABoundIsNotExported: its reader gets a page with the bound, and not the beginning of an archive.
func TestWorksheetOverABoundIsNotExported(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home := s.home("alice")
	var runs []codalab.Object
	for range 25 { // the metadata of one are bounded
		runs = append(runs, codalab.NewObject("bundles", "", map[string]any{
			"bundle_type": "run", "command": "date", "metadata": metadata("run", "r", map[string]any{"exclude_patterns": make([]string, 85_000)}),
		}))
	}
	s.call("alice", "POST", "/bundles?worksheet="+home, codalab.NewDocument(runs)).ok()
	s.browse(t, "alice").shows(t, "/worksheets/"+home+"/export.zip", http.StatusRequestEntityTooLarge,
		"too large for an archive: the description of its items and bundles has more than 2000000 values. cl export has the same bound.")
}

// breaking makes a directory unreadable as soon as a part of an answer has come.
type breaking struct {
	*httptest.ResponseRecorder
	directory string
}

func (b breaking) Write(text []byte) (int, error) {
	if os.Rename(b.directory, b.directory+"-away") == nil { // it is the first part
		_ = os.Symlink(b.directory, b.directory) // if it fails, so does the test
	}
	return b.ResponseRecorder.Write(text)
}

// TestExportThatBreaksOffIsNoArchive: an archive whose contents cannot be read to the end has no directory, no program takes it
// for a whole one, and the log has the reason.
func TestExportThatBreaksOffIsNoArchive(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newSite(t, func(c *server.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	noise := make([]byte, 32<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	first, second := s.upload("first", string(noise)), s.upload("second", "x")
	home := s.home("alice")
	s.call("alice", "POST", "/worksheets/"+home+"/add-items", map[string]any{"items": []string{first, second}, "item_type": "bundle"}).ok()
	found, err := filepath.Glob(filepath.Join(s.dir, "bundles", second+"-*", "contents"))
	must(t, err)
	path := "/worksheets/" + home + "/export.zip"
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, c := range s.browse(t, "alice").cookies {
		r.AddCookie(c)
	}
	w := breaking{httptest.NewRecorder(), filepath.Dir(found[0])}
	func() {
		defer func() {
			if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("the export ended with %v", err)
			}
		}()
		s.handler.ServeHTTP(w, r)
	}()
	part := w.Body.String()
	if _, err := export.Open(strings.NewReader(part), int64(len(part))); len(part) < len(noise)/2 || err == nil {
		t.Errorf("%d bytes are an archive", len(part))
	}
	if text := log.String(); !strings.Contains(text, path) || !strings.Contains(text, second) {
		t.Errorf("the log is %q", text)
	}
}

// held is a reader that takes nothing before it is let go.
type held struct {
	*httptest.ResponseRecorder
	begun   chan<- bool
	release <-chan struct{}
}

func (h held) Write(text []byte) (int, error) {
	select {
	case <-h.release:
	default:
		h.begun <- true
		<-h.release
	}
	return h.ResponseRecorder.Write(text)
}

// TestExportsAtATimeAreBounded: a user has some archives at a time, and others have theirs meanwhile. One that has ended makes
// room, and HEAD needs none.
func TestExportsAtATimeAreBounded(t *testing.T) {
	t.Parallel()
	const most = 2
	s := newSite(t)
	noise := make([]byte, 32<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	data, home := s.upload("data", string(noise)), s.home("alice")
	s.call("alice", "POST", "/worksheets/"+home+"/add-items", map[string]any{"items": []string{data}, "item_type": "bundle"}).ok()
	s.share("alice", "worksheet", home, "public", store.PermissionRead)
	export := func(method, user string, w http.ResponseWriter) {
		r := httptest.NewRequest(method, "/worksheets/"+home+"/export.zip", nil)
		for _, c := range s.browse(t, user).cookies {
			r.AddCookie(c)
		}
		s.handler.ServeHTTP(w, r)
	}
	status := func(method, user string) int {
		w := httptest.NewRecorder()
		export(method, user, w)
		return w.Code
	}
	for _, user := range []string{"alice", ""} {
		begun, release, ended := make(chan bool), make(chan struct{}), make(chan int)
		for range most {
			go func() {
				w := held{httptest.NewRecorder(), begun, release}
				export(http.MethodGet, user, w)
				ended <- w.Code
			}()
		}
		for range most {
			<-begun
		}
		if got := status(http.MethodGet, user); got != http.StatusTooManyRequests {
			t.Errorf("%q: one export too many gets %d", user, got)
		}
		if others, head := status(http.MethodGet, "bob"), status(http.MethodHead, user); others != http.StatusOK || head != http.StatusOK {
			t.Errorf("%q: meanwhile others get %d, and HEAD %d", user, others, head)
		}
		close(release)
		for range most {
			if got := <-ended; got != http.StatusOK {
				t.Errorf("%q: an export ends with %d", user, got)
			}
		}
		if got := status(http.MethodGet, user); got != http.StatusOK {
			t.Errorf("%q: %d after the others have ended", user, got)
		}
	}
}

func entryOf(t *testing.T, z *zip.Reader, name string) string {
	t.Helper()
	f, err := z.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
