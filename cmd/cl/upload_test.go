package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func TestFailedUploadLeavesNoBundle(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path string
		handle       func(http.ResponseWriter, *http.Request, http.Handler)
		code         int
		says         string
	}{
		"disk full":          {"PUT", "/blob/", answer(500, "Upload failed: [Errno 28] No space left on device"), 3, "ServerError: Upload failed: [Errno 28] No space left on device\n"},
		"insufficient":       {"PUT", "/blob/", answer(507, "the disk is full"), 3, "ServerError: the disk is full\n"},
		"refusal":            {"PUT", "/blob/", answer(400, "Upload failed: no"), 1, "UsageError: Upload failed: no\n"},
		"page of a proxy":    {"PUT", "/blob/", answer(502, "<html><body>\nBad Gateway"), 3, "ServerError: 502 Bad Gateway (a web page, not the answer of a CodaLab server; check the address"},
		"too large for it":   {"PUT", "/blob/", answer(413, "<html>"), 1, "UsageError: 413 Request Entity Too Large (a web page"},
		"broken connection":  {"PUT", "/blob/", func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }, 3, "cannot reach the server at"},
		"creation in doubt":  {"POST", "/rest/bundles", lose, 3, "cannot reach the server at"},
		"creation forbidden": {"POST", "/rest/bundles", answer(403, "no"), 1, "no\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			doubt := name == "page of a proxy" || name == "broken connection" // the server may still be at it
			if doubt {
				s.now = leaping()
			}
			s.on(test.method, test.path, test.handle)
			r := s.ends(t, test.code, "upload", s.file(t, "a.txt", random(100)))
			wantText(t, "standard error", r.stderr, test.says)
			if r.stdout != "" {
				t.Errorf("printed %s", r.stdout)
			}
			if told := strings.Contains(r.stderr, "It is not known whether bundle 0x"); told != doubt {
				t.Errorf("told of a doubt: %v\n%s", told, r.stderr)
			}
			if left := s.bundles(t); !doubt && len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

// lose has a request done, and loses its answer.
func lose(_ http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

func TestLostAnswerOfAnUploadIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.on("PUT", "/blob/", lose)
	if r := s.ends(t, 0, "upload", s.file(t, "a.txt", random(100))); !strings.HasPrefix(r.stdout, "0x") || r.stderr != "" {
		t.Errorf("got %+v", r)
	}
	if diff := cmp.Diff([]string{"a.txt ready"}, s.bundles(t)); diff != "" {
		t.Error(diff)
	}
}

func TestBundleThatCannotBeRemovedIsNamed(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.on("PUT", "/blob/", answer(400, "Upload failed: no"))
	s.on("DELETE", "/bundles", answer(403, "not you"))
	r := s.ends(t, 1, "upload", s.file(t, "a.txt", nil))
	wantText(t, "standard error", r.stderr, "remains without its contents, since it could not be removed: not you. Remove it with: cl rm 0x")
}

func TestInterruptedUploadLeavesNoBundle(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"POST /rest/bundles", "PUT /blob/"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			ctx, interrupt := context.WithCancel(t.Context())
			method, path, _ := strings.Cut(at, " ")
			s.on(method, path, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				interrupt()
				next.ServeHTTP(w, r)
			})
			in, never := io.Pipe()
			defer never.Close()
			r := s.cl(ctx, in, "upload", "-")
			if r.code != program.ExitInterrupted || r.stdout != "" {
				t.Errorf("got %+v", r)
			}
			wantText(t, "standard error", r.stderr, "was removed again")
			if left := s.bundles(t); len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

// The upload has begun, and standard input stays silent.
func TestInterruptEndsAnUploadThatWaitsForStandardInput(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	ctx, interrupt := context.WithCancel(t.Context())
	s.on("PUT", "/blob/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(r.Body, first); err != nil {
			t.Error(err)
		}
		interrupt()
		next.ServeHTTP(w, r)
	})
	in, producer := io.Pipe()
	defer producer.Close()
	go func() { _, _ = producer.Write([]byte("a")) }() // ends with the first read, or with Close
	r := s.cl(ctx, in, "upload", "-")
	if r.code != program.ExitInterrupted || r.stdout != "" {
		t.Errorf("got %+v", r)
	}
	wantText(t, "standard error", r.stderr, "was removed again")
	if left := s.bundles(t); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestInterruptEndsTheReadingOfStandardInput(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	in, producer := io.Pipe()
	defer producer.Close()
	if r := s.cl(ctx, in, "wedit", "--file", "-"); r.code != program.ExitInterrupted || r.stdout != "" {
		t.Errorf("got %+v", r)
	}
}

func TestTooLargeUploadIsRefusedBeforeItBegins(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1000)
	r := s.ends(t, 1, "upload", s.file(t, "a.txt", random(2000)))
	wantText(t, "standard error", r.stderr, "UsageError: Can't save bundle, user disk quota exceeded. The upload needs 2.0k, but only 1000 of your disk quota of 1000 are left.")
	r = s.ends(t, 1, "upload", s.dir)
	wantText(t, "standard error", r.stderr, "UsageError: Can't save bundle, user disk quota exceeded. The upload needs ")
	if calls := s.called("PUT"); len(calls) > 0 {
		t.Errorf("something was sent")
	}
	// The size of standard input is known only after it was sent.
	r = s.cl(t.Context(), bytes.NewReader(random(1<<20)), "upload", "-")
	wantText(t, "standard error", r.stderr, "Can't save bundle, user disk quota exceeded.")
	if left := s.bundles(t); len(left) > 0 || r.code != 1 {
		t.Errorf("exit code %d, left %q", r.code, left)
	}
}

func TestStandardInputBecomesAFileOrItsArchiveADirectory(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	upload := func(stdin string, args ...string) {
		t.Helper()
		if r := s.cl(t.Context(), strings.NewReader(stdin), append([]string{"upload", "-"}, args...)...); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	upload("text")
	if r := s.ends(t, 0, "cat", "stdin"); r.stdout != "text" {
		t.Errorf("got %q", r.stdout)
	}
	archive := "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\xcb\xcf\x57\xe0\x02\x00" // not whole
	if r := s.cl(t.Context(), strings.NewReader(archive), "upload", "-", "-n", "x.gz"); r.code == 0 {
		t.Error("a broken archive was taken")
	}
	upload(archive, "-n", "x.gz", "-p")
	if diff := cmp.Diff([]string{"stdin ready", "x.gz ready"}, s.bundles(t)); diff != "" {
		t.Error(diff)
	}
}

func TestServerFetchesURLs(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	web := httptest.NewServer(http.FileServer(http.Dir(s.dir)))
	t.Cleanup(web.Close)
	s.file(t, "page.html", []byte("page"))
	s.ends(t, 0, "upload", web.URL+"/page.html")
	if r := s.ends(t, 0, "cat", "page.html"); r.stdout != "page" {
		t.Errorf("got %q", r.stdout)
	}
	if r := s.ends(t, 0, "info", "-f", "source_url", "page.html"); r.stdout != "['"+web.URL+"/page.html']\n" {
		t.Errorf("got %q", r.stdout)
	}
	r := s.ends(t, 1, "upload", web.URL+"/nosuch", "-n", "missing")
	wantText(t, "standard error", r.stderr, "404 Not Found")
	if diff := cmp.Diff([]string{"page.html ready"}, s.bundles(t)); diff != "" {
		t.Error(diff)
	}
	var query string
	s.on("PUT", "/blob/", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		query = r.URL.RawQuery
		answer(400, "no")(w, r, nil)
	})
	s.ends(t, 1, "upload", "-g", "https://example.org/x.git", "-a", "--store", "far")
	want := "finalize_on_failure=1&finalize_on_success=1&git=1&state_on_success=ready&store=far&unpack=1&urls=https%3A%2F%2Fexample.org%2Fx.git&use_azure_blob_beta=1"
	if diff := cmp.Diff(want, query); diff != "" {
		t.Error(diff)
	}
}
