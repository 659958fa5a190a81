package pages

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// get asks for an address as a browser does. It returns the answer's header and text.
func get(t *testing.T, h http.Handler, address string) (http.Header, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, address, nil)
	r.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	defer resp.Body.Close()
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		body = unpacked
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header, string(text)
}

func TestBrowsersKeepStaticFilesForGood(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	p := New(Config{})
	p.Handle(mux)
	address, err := p.static.address("style.css")
	if err != nil {
		t.Fatal(err)
	}
	want, err := fs.ReadFile(files{}, "static/style.css")
	if err != nil {
		t.Fatal(err)
	}
	for address, age := range map[string]string{
		address:                       "public, max-age=31536000, immutable",
		"/static/style.css":           "public, max-age=3600",
		"/static/style.css?v=another": "public, max-age=3600",
	} {
		header, text := get(t, mux, address)
		if header.Get("Cache-Control") != age || text != string(want) || header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %v, %d bytes", address, header, len(text))
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/static/style.css", nil)
	header, _ := get(t, mux, "/static/style.css")
	r.Header.Set("If-None-Match", header.Get("ETag"))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	if w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("a file that the browser has is sent again: %d, %d bytes", w.Code, w.Body.Len())
	}
	if address, err := p.static.address("none.js"); err == nil {
		t.Errorf("a file that is not there has the address %s", address)
	}
}

func TestPagesAreCompressedAndStreamsAreNot(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<p>a</p>", 1000)
	for kind, want := range map[string]string{"text/html; charset=utf-8": "gzip", "text/event-stream": "", "image/png": ""} {
		h := compressing()(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write([]byte(long)) // a recorder takes all
		}))
		if header, text := get(t, h, "/"); header.Get("Content-Encoding") != want || text != long {
			t.Errorf("%s: %v, %d bytes", kind, header, len(text))
		}
	}
}
