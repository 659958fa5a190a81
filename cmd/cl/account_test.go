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
	for name, status := range map[string]int{"gone": 0, "in trouble": http.StatusBadGateway, "without the call": http.StatusNotFound, "CodaLab's own": http.StatusUnauthorized} {
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
			if advice := strings.Contains(said, "revoke"); advice != (status == 0 || status == http.StatusBadGateway) {
				t.Errorf("said %q", said)
			}
			if len(tokens()) != 0 || !strings.Contains(said, "valid") || !strings.Contains(said, "30 days") || strings.Count(said, "\n") != 1 {
				t.Errorf("tokens: %v; said %q", tokens(), said)
			}
		})
	}
}

// CodaLab's own server lacks the calls, and has pages where cl-server has a call for one-time codes.
func TestCommandsOfClServerAloneAreOneSentenceOnCodaLabsOwn(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "POST /rest/oauth2/token":
			_, _ = io.WriteString(w, `{"access_token": "t", "refresh_token": "r", "expires_in": 3600, "token_type": "Bearer"}`)
		case "GET /rest/user":
			_, _ = io.WriteString(w, `{"data": {"id": "0x1", "type": "users", "attributes": {"user_name": "anna"}}}`)
		case "GET /rest/worksheets":
			_, _ = io.WriteString(w, `{"data": [{"id": "0x11111111111111111111111111111111", "type": "worksheets", "attributes": {"name": "home-anna"}}]}`)
		case "GET /rest/bundles":
			_, _ = io.WriteString(w, `{"data": [{"id": "0x22222222222222222222222222222222", "type": "bundles", "attributes": {"uuid": "0x22222222222222222222222222222222"}}]}`)
		case "POST /rest/bundles":
			http.Error(w, "Unexpected metadata key: secrets", http.StatusBadRequest)
		case "POST /rest/account/reset/finalize":
			t.Error("the server got a one-time code")
			http.Redirect(w, r, "/account/reset/complete", http.StatusSeeOther)
		case "GET /account/reset/complete":
			_, _ = io.WriteString(w, "<!DOCTYPE html><html></html>")
		default:
			http.Error(w, "Not found: '"+strings.TrimPrefix(r.URL.Path, "/rest")+"'", http.StatusNotFound)
		}
	}))
	t.Cleanup(web.Close)
	env := map[string]string{"CODALAB_HOME": t.TempDir(), "CODALAB_USERNAME": "anna", "CODALAB_PASSWORD": "p", "CL_SERVER": web.URL}
	const (
		bundle   = "0x22222222222222222222222222222222"
		password = "passwords are changed on its web page"
		sessions = "it lists no sessions"
		secrets  = "it keeps no secrets"
		tokens   = "it has no program tokens; bridges and workers need a password there"
		offers   = "it has no offers; cl chown gives a bundle to its new owner at once"
	)
	for line, lack := range map[string]string{
		"passwd": password, "passwd --reset": password,
		"sessions": sessions, "sessions revoke x": sessions, "sessions revoke --all": sessions,
		"secret ls": secrets, "secret set KEY": secrets, "secret rm KEY": secrets, "run --secret KEY date": secrets,
		"token ls": tokens, "token add --workers a-*": tokens, "token rm x": tokens,
		"offers": offers, "offers accept 0x1": offers, "offers decline --from ben": offers,
		"info --history " + bundle: "it keeps no histories of bundles",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			err := run(t.Context(), program.Process{
				Args: strings.Fields(line), Stdin: strings.NewReader("old\nnew\n"), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now,
				Getenv: func(name string) string { return env[name] },
			})
			if want := "UsageError: " + web.URL + " is CodaLab's own server, or an old cl-server: " + lack; err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}
