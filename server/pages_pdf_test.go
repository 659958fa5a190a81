package server_test

import (
	"mime"
	"net/http"
	"strings"
	"testing"
)

// A PDF opens in the browser's own viewer. What only has its name is a text on the page of the file, and nothing that a browser
// could take for a page is served from the address of PDFs.
func TestPDFsOpenInTheBrowsersViewer(t *testing.T) {
	t.Parallel()
	const script = "<script>alert(1)</script>"
	const evil = "\"; filename=a.html; x=\"\r\n\u202e.pdf"
	late := strings.Repeat("x", 1020) + "%PDF-1.4"
	s := newSite(t)
	uuid := s.tree(t, map[string]string{
		"a.pdf": "%PDF-1.4\n" + strings.Repeat("x", 200<<10), "polyglot.html": "<!doctype html>" + script + "%PDF-1.4", evil: "%PDF-1.4", "dir/b": "",
		"html.pdf": script, "late.pdf": late, "empty.pdf": "", "a.svg": "<svg xmlns='http://www.w3.org/2000/svg'>" + script + "</svg>",
	})
	single := s.upload("paper.pdf", "%PDF-1.4")
	a := s.browse(t, "alice")
	at := "/bundles/" + uuid + "/pdf/"
	for path, want := range map[string]struct{ name, text string }{
		at + "a.pdf":         {"a.pdf", "%PDF-1.4\n" + strings.Repeat("x", 200<<10)},
		at + "polyglot.html": {"polyglot.html", "<!doctype html>" + script + "%PDF-1.4"},
		at + "%22;%20filename=a.html;%20x=%22%0D%0A%E2%80%AE.pdf": {evil, "%PDF-1.4"},
		"/bundles/" + single + "/pdf/":                            {single + ".pdf", "%PDF-1.4"},
	} {
		got := a.form(path, nil, http.Header{"Accept-Encoding": {"gzip"}}, a.cookies...)
		how, params, err := mime.ParseMediaType(got.header.Get("Content-Disposition"))
		if got.status != http.StatusOK || got.body != want.text || err != nil || how != "inline" || params["filename"] != want.name {
			t.Errorf("%s: %d, %d bytes, %v", path, got.status, len(got.body), got.header)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/pdf", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Content-Encoding": "",
			"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
		} {
			if got.header.Get(name) != value {
				t.Errorf("%s is sent with %s: %s", path, name, got.header.Get(name))
			}
		}
	}
	for path, status := range map[string]int{
		"html.pdf": http.StatusUnsupportedMediaType, "late.pdf": http.StatusUnsupportedMediaType, "empty.pdf": http.StatusUnsupportedMediaType,
		"a.svg": http.StatusUnsupportedMediaType, "dir": http.StatusUnsupportedMediaType, "none.pdf": http.StatusNotFound,
	} {
		checkHarmless(t, path, a.shows(t, at+path, status))
	}
	a.shows(t, "/bundles/"+single, http.StatusOK, `A PDF. <a href="/bundles/`+single+`/pdf/"`)
	s.browse(t, "bob").shows(t, at+"a.pdf", http.StatusForbidden)
}
