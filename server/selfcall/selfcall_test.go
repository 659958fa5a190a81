package selfcall_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/selfcall"
)

// call sends a request through a Transport, in the name of a browser's.
func call(t *testing.T, most int64, log io.Writer, serve http.HandlerFunc) (*http.Response, error) {
	t.Helper()
	from := httptest.NewRequest(http.MethodGet, "https://lab.example/page", nil)
	from.RemoteAddr = "192.0.2.7:1"
	from.Header.Set("Cookie", "a=b")
	from.Header.Set("X-Other", "not a proof")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://cl-server.invalid/rest/user", nil)
	r.Header.Set("Authorization", "Bearer of nobody")
	return selfcall.Transport{Handler: serve, From: from, Log: slog.New(slog.NewTextHandler(log, nil)), Most: most}.RoundTrip(r)
}

func TestRequestIsThatOfTheOther(t *testing.T) {
	t.Parallel()
	resp, err := call(t, 0, io.Discard, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "lab.example" || r.RemoteAddr != "192.0.2.7:1" || r.TLS == nil || r.Header.Get("Cookie") != "a=b" || r.Header.Get("Authorization") != "" || r.Header.Get("X-Other") != "" {
			t.Errorf("the handler gets %+v", r)
		}
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "text")
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || string(text) != "text" || resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Answer") != "yes" {
		t.Errorf("%d %v %q, %v", resp.StatusCode, resp.Header, text, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

// A reader that has enough ends the handler, though it writes for ever.
func TestClosedBodyEndsTheHandler(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	resp, err := call(t, 0, io.Discard, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for err := error(nil); err == nil; {
			_, err = io.WriteString(w, "more")
		}
		<-r.Context().Done()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

func TestAnswersThatAreNotWholeFail(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		serve  http.HandlerFunc
		logged bool
	}{
		"too large":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 11)) }, false},
		"broken off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false},
		"a mistake":  {func(http.ResponseWriter, *http.Request) { panic("a mistake") }, true},
	} {
		var log testenv.Output
		resp, err := call(t, 10, &log, test.serve)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err == nil || strings.Contains(log.String(), "a mistake") != test.logged {
			t.Errorf("%s: %v; the log is %q", name, err, log.String())
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}
