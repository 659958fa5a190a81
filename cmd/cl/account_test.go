package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// A server that is gone, or refuses to end the session, keeps the session. The token here is forgotten all the same.
func TestLogoutForgetsTheTokenAlsoIfTheServerKeepsTheSession(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"gone": 0, "in trouble": http.StatusBadGateway, "without the call": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/rest/oauth2/token":
					_, _ = io.WriteString(w, `{"access_token": "t", "refresh_token": "r", "expires_in": 3600, "token_type": "Bearer"}`)
				case "/rest/oauth2/revoke":
					if r.FormValue("token") != "r" {
						t.Errorf("%v", r.Form)
					}
					w.WriteHeader(status)
				default:
					_, _ = io.WriteString(w, `{"data": {"id": "0x1", "type": "users", "attributes": {"user_name": "anna"}}}`)
				}
			}))
			t.Cleanup(web.Close)
			home := t.TempDir()
			env := map[string]string{"CODALAB_HOME": home, "CODALAB_USERNAME": "anna", "CODALAB_PASSWORD": "p", "CL_SERVER": web.URL}
			call := func(args ...string) string {
				var out, errors bytes.Buffer
				err := run(t.Context(), program.Process{
					Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errors, Now: time.Now,
					Getenv: func(name string) string { return env[name] },
				})
				if err != nil {
					t.Errorf("cl %v: %v", args, err)
				}
				return errors.String()
			}
			tokens := func() []string {
				files, err := filepath.Glob(filepath.Join(home, "cl-tokens", "*"))
				if err != nil {
					t.Fatal(err)
				}
				return files
			}
			call("uinfo")
			if len(tokens()) != 1 {
				t.Fatalf("tokens: %v", tokens())
			}
			if status == 0 {
				web.Close()
			}
			said := call("logout")
			if len(tokens()) != 0 || !strings.Contains(said, "valid") || !strings.Contains(said, "30 days") || strings.Count(said, "\n") != 1 {
				t.Errorf("tokens: %v; said %q", tokens(), said)
			}
		})
	}
}

// CodaLab's own server has no calls for passwords and sessions.
func TestCodaLabsOwnServerChangesPasswordsOnItsPage(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/rest/oauth2/token":
			_, _ = io.WriteString(w, `{"access_token": "t", "refresh_token": "r", "expires_in": 3600, "token_type": "Bearer"}`)
		case "/rest/user":
			_, _ = io.WriteString(w, `{"data": {"id": "0x1", "type": "users", "attributes": {"user_name": "anna"}}}`)
		default:
			http.Error(w, "Not found: '"+r.URL.Path+"'", http.StatusNotFound)
		}
	}))
	t.Cleanup(web.Close)
	env := map[string]string{"CODALAB_HOME": t.TempDir(), "CODALAB_USERNAME": "anna", "CODALAB_PASSWORD": "p", "CL_SERVER": web.URL}
	for _, line := range []string{"passwd", "sessions", "sessions revoke x", "sessions revoke --all"} {
		err := run(t.Context(), program.Process{
			Args: strings.Fields(line), Stdin: strings.NewReader("old\nnew\n"), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now,
			Getenv: func(name string) string { return env[name] },
		})
		if err == nil || err.Error() != "UsageError: this is CodaLab's own server, or an old cl-server: passwords are changed on its web page, and it lists no sessions" {
			t.Errorf("cl %s: %v", line, err)
		}
	}
}
