package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// TestOddServersAreOneSentence calls servers that are none, that are proxies, or that break off.
func TestOddServersAreOneSentence(t *testing.T) {
	t.Parallel()
	const page = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\n<body>Please sign in</body></html>\n"
	token := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/rest/oauth2/token" {
			return false
		}
		_, _ = io.WriteString(w, `{"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}`)
		return true
	}
	for _, test := range []struct {
		name  string
		serve http.HandlerFunc
		code  int
		words string
	}{
		{"a page for everything", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }, program.ExitFailure, "the answer is not a CodaLab server's; check the address http://"},
		{"a page after the sign-in", func(w http.ResponseWriter, r *http.Request) {
			if !token(w, r) {
				_, _ = io.WriteString(w, page)
			}
		}, program.ExitFailure, "the answer is not a CodaLab server's"},
		{"a redirect to a page", func(w http.ResponseWriter, r *http.Request) {
			switch {
			case token(w, r):
			case r.URL.Path == "/login":
				_, _ = io.WriteString(w, page)
			default:
				http.Redirect(w, r, "/login", http.StatusFound)
			}
		}, program.ExitFailure, "the answer is not a CodaLab server's"},
		{"a proxy without a server", func(w http.ResponseWriter, r *http.Request) {
			if !token(w, r) {
				w.WriteHeader(http.StatusBadGateway)
				_, _ = io.WriteString(w, page)
			}
		}, program.ExitTransient, "ServerError: 502 Bad Gateway (a web page"},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, program.ExitFailure, "gave no bearer token"},
		{"JSON of something else", func(w http.ResponseWriter, r *http.Request) {
			if !token(w, r) {
				_, _ = io.WriteString(w, `{"items": []}`)
			}
		}, program.ExitFailure, "no object"},
		{"an older server", func(w http.ResponseWriter, r *http.Request) {
			if !token(w, r) {
				http.Error(w, "Not found: '/worksheets'", http.StatusNotFound)
			}
		}, program.ExitFailure, "the server does not know GET /worksheets: it is older than CodaLab"},
		{"an answer that breaks off", func(w http.ResponseWriter, r *http.Request) {
			if !token(w, r) {
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, `{"data": `)
				panic(http.ErrAbortHandler)
			}
		}, program.ExitTransient, "cannot reach the server at http://"},
		{"an error with a statement of SQL", func(w http.ResponseWriter, r *http.Request) {
			if !token(w, r) {
				http.Error(w, "Unexpected Internal Error (no)\n[SQL: SELECT]", http.StatusInternalServerError)
			}
		}, program.ExitTransient, "ServerError: Unexpected Internal Error (no)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(test.serve)
			defer s.Close()
			home := t.TempDir()
			var out, errs bytes.Buffer
			err := run(t.Context(), program.Process{
				Args: []string{"ls"}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now,
				Getenv: func(name string) string {
					return map[string]string{"CL_SERVER": s.URL, "CODALAB_USERNAME": "anna", "CODALAB_PASSWORD": "x", "CODALAB_HOME": home}[name]
				},
			})
			if code := program.Code(t.Context(), err); err == nil || code != test.code || !strings.Contains(err.Error(), test.words) {
				t.Errorf("exit code %d (want %d), %v", code, test.code, err)
			}
			if err != nil && strings.Contains(err.Error(), "\n") || out.Len() > 0 || errs.Len() > 0 {
				t.Errorf("want one sentence, got %v, %q and %q", err, out.String(), errs.String())
			}
		})
	}
}
