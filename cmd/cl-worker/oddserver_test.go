package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// workFor is a stand-alone worker for a server, in this process, with a work directory of its own.
func workFor(ctx context.Context, t *testing.T, address string, now func() time.Time, args ...string) (code int, err error) {
	t.Helper()
	return workWith(ctx, t, map[string]string{"CODALAB_USERNAME": "ann", "CODALAB_PASSWORD": scriptPassword}, address, now, args...)
}

// workWith is workFor with another login, which is in variables.
func workWith(ctx context.Context, t *testing.T, env map[string]string, address string, now func() time.Time, args ...string) (code int, err error) {
	t.Helper()
	testenv.Containers(t) //nolint:contextcheck // it is for programs that it calls
	dir := t.TempDir()
	env["HOME"], env["PATH"] = dir, os.Getenv("PATH")
	var log bytes.Buffer
	err = run(ctx, program.Process{
		Args:  append([]string{"--server", address, "--work-dir", filepath.Join(dir, "work")}, args...),
		Stdin: strings.NewReader(""), Stdout: &log, Stderr: &log, Now: now,
		Getenv: func(name string) string { return env[name] },
	})
	if t.Failed() {
		t.Log(log.String())
	}
	return program.Code(ctx, err), err
}

// answer returns a handler that answers with a text.
func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func refuse(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }
}

// signedIn serves the sign-in and the user as a CodaLab server does, and everything else by rest.
func signedIn(rest http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/rest/oauth2/token":
			answer(`{"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}`)(w, r)
		case "/rest/user":
			answer(`{"data": {"type": "users", "id": "1", "attributes": {"user_name": "ann"}}}`)(w, r)
		default:
			rest(w, r)
		}
	}
}

// TestServerThatIsNoneEndsTheWorkerInASentence also counts the requests: there is no second try.
func TestServerThatIsNoneEndsTheWorkerInASentence(t *testing.T) {
	t.Parallel()
	const notCodaLab = "does not answer as a CodaLab server: "
	onlyToken := func(rest http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/rest/user" {
				rest(w, r)
				return
			}
			signedIn(rest)(w, r)
		}
	}
	for _, test := range []struct {
		name     string
		serve    http.HandlerFunc
		code     int
		words    string
		requests int64
	}{
		{"another service", refuse(http.StatusNotFound), program.ExitUsage, notCodaLab, 1},
		{"a page for everything", answer("<html><title>Sign in</title></html>"), program.ExitUsage, notCodaLab, 1},
		{"nothing", answer(""), program.ExitUsage, "gave no bearer token", 1},
		{"JSON of something else", onlyToken(answer(`{"items": []}`)), program.ExitUsage, notCodaLab, 2},
		{"a wrong password", refuse(http.StatusUnauthorized), program.ExitDenied, "refuses the user ann: wrong user name or password", 1},
		{"a user who may do nothing", onlyToken(refuse(http.StatusForbidden)), program.ExitDenied, "refuses the user ann: ", 2},
		{"a server without workers", signedIn(refuse(http.StatusNotFound)), program.ExitFailure, "check in queue worker: ", 3},
		{"a server that refuses workers", signedIn(refuse(http.StatusForbidden)), program.ExitDenied, "refuses the user ann: ", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				test.serve(w, r)
			}))
			defer web.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			code, err := workFor(ctx, t, web.URL, time.Now)
			if code != test.code || err == nil || !strings.Contains(err.Error(), test.words) || strings.Contains(strings.TrimSpace(err.Error()), "\n") {
				t.Errorf("%d, %v; want %d and a line with %q", code, err, test.code, test.words)
			}
			if n := requests.Load(); n > test.requests {
				t.Errorf("%d requests, want at most %d", n, test.requests)
			}
		})
	}
}

// A busy machine only makes the worker ask later.
func TestServerInTroubleIsAskedLessAndLess(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]http.HandlerFunc{
		"a proxy without a server": refuse(http.StatusBadGateway),
		"check-ins fail":           signedIn(refuse(http.StatusServiceUnavailable)),
		"connections break": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
		"check-ins are not held": signedIn(answer(`{"data": []}`)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const enough = 5
			ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
			defer cancel()
			var requests atomic.Int64
			began := time.Now()
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) == enough {
					t.Logf("%d requests after %v", enough, time.Since(began))
					cancel()
				}
				serve(w, r)
			}))
			defer web.Close()
			if code, err := workFor(ctx, t, web.URL, time.Now); code != 0 && code != program.ExitInterrupted && !errors.Is(err, context.Canceled) {
				t.Errorf("%d, %v", code, err)
			}
			if lasted := time.Since(began); requests.Load() < enough || lasted < time.Second {
				t.Errorf("%d requests in %v; want %d, and not within a second", requests.Load(), lasted, enough)
			}
		})
	}
}

// TestWrongClockOfAHostDoesNotMatter has workers whose clocks are a year off.
func TestWrongClockOfAHostDoesNotMatter(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, off := range map[string]time.Duration{"late": -year, "early": year} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			address := startTestServer(t, t.TempDir())
			code, err := workFor(ctx, t, address, func() time.Time { return time.Now().Add(off) }, "--exit-when-idle")
			if code != 0 || err != nil {
				t.Errorf("%d, %v", code, err)
			}
		})
	}
}
