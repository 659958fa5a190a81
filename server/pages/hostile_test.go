package pages

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// The API's refusal of a busy moment leaves the text in the form.
func TestTextThatCannotBeSavedNowStaysInTheForm(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rest/user", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":{"type":"users","id":"1","attributes":{"user_name":"ann"}}}`))
	})
	mux.HandleFunc("/rest/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) })
	p := New(Config{
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Follow:        func(r *http.Request) (context.Context, func(), error) { return r.Context(), func() {}, nil },
		StillSignedIn: func(context.Context) error { return nil },
		Address:       func(*http.Request) string { return "a" }, Encrypted: func(*http.Request) bool { return false },
	})
	p.Handle(mux)
	for cookie, want := range map[string]int{"codalab_session=1; cl_session=x": http.StatusServiceUnavailable, "": http.StatusUnauthorized} {
		r := httptest.NewRequest(http.MethodPost, "/worksheets/0x00000000000000000000000000000001/edit", strings.NewReader("text=hours+of+work&tag=x&action=save"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Cookie", cookie)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if kept := strings.Contains(w.Body.String(), "hours of work"); w.Code != want || kept != (want == http.StatusServiceUnavailable) {
			t.Errorf("with %q: %d, the text is kept: %v\n%s", cookie, w.Code, kept, w.Body.String())
		}
	}
}

func TestInputsOfAFormAreLines(t *testing.T) {
	t.Parallel()
	f := runForm{Dependencies: " d:data/my file.txt \r\n\r\nother\n", Problems: map[string]string{}}
	if want := []codalab.Input{{Key: "d", Target: "data/my file.txt"}, {Key: "b2", Target: "other"}}; !slices.Equal(f.inputs(), want) || len(f.Problems) > 0 {
		t.Errorf("%q, %v", f.inputs(), f.Problems)
	}
}

func TestFormThatWasSentBeforeMakesOneRun(t *testing.T) {
	t.Parallel()
	command := "date"
	deps := []codalab.Dependency{{ChildPath: "d", ParentUUID: "0x1"}}
	there := codalab.Bundle{Command: &command, Dependencies: deps, Metadata: codalab.Metadata{"name": "a", "request_cpus": 1.0, "created": 5}}
	same := client.NewBundle{Command: "date", Dependencies: deps, Metadata: codalab.Metadata{"name": "a", "request_cpus": 1, "tags": nil}}
	for name, change := range map[string]func(*client.NewBundle){
		"": func(*client.NewBundle) {}, "command": func(b *client.NewBundle) { b.Command = "ls" }, "inputs": func(b *client.NewBundle) { b.Dependencies = nil },
		"requests": func(b *client.NewBundle) { b.Metadata = codalab.Metadata{"request_cpus": 2} },
	} {
		b := same
		change(&b)
		if got := sameRun(there, b); got != (name == "") {
			t.Errorf("with another %q: %v", name, got)
		}
	}
}
