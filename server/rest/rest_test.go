package rest

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestRouteServesOnlyWhomItAdmits(t *testing.T) {
	t.Parallel()
	person, account, token := store.User{ID: "0xa", Name: "alice"}, store.User{ID: "0xb", Name: "machine", IsWorker: true}, store.User{ID: "0xa", Name: "alice", OnlyWorker: "w"}
	for _, test := range []struct {
		route  Route
		user   store.User
		worker string // in the path
		admits bool
	}{
		{Route{}, person, "", true},
		{Route{}, account, "", false},
		{Route{}, token, "", false},
		{Route{Worker: true}, account, "w", true},
		{Route{Worker: true}, token, "w", false},
		{Route{WorkerToken: true}, token, "w", true},
		{Route{WorkerToken: true}, token, "other", false},
		{Route{WorkerToken: true}, token, "", true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetPathValue("worker", test.worker)
		if err := test.route.Admit(r, test.user); (err == nil) != test.admits || err != nil && !HasStatus(err, http.StatusForbidden) {
			t.Errorf("%+v, %s %q, worker %q: %v", test.route, test.user.Name, test.user.OnlyWorker, test.worker, err)
		}
	}
}

func TestRequestsOfWorkersAndPartsOfUploadsAreNotAudited(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{
		"GET /bundles": false, "POST /bundles": true, "DELETE /users": true, "PUT /bundles/{uuid}/contents/blob/{$}": true,
		"PATCH /user/increment_disk_used": false, "POST /workers/{worker}/checkin": false, "POST /interpret/worksheet/{uuid}": false,
		"PUT /bundles/{uuid}/netcat/{port}/{$}": false, "POST /bundles/{uuid}/netcurl/{port}/{path...}": false,
	} {
		if got := (Route{Pattern: pattern}).Changes(); got != want {
			t.Errorf("%s: %v", pattern, got)
		}
	}
	if !(Route{Pattern: "POST /workers/{worker}/token", Audited: true}).Changes() {
		t.Error("a worker token is not audited")
	}
}

// A client learns nothing of the server's insides.
func TestErrorsAreAnsweredWithoutTheirDetails(t *testing.T) {
	t.Parallel()
	secret := errors.New("/data/secret")
	for _, test := range []struct {
		err    error
		status int
		body   string
		logged bool
	}{
		{Refuse(http.StatusNotFound, "No such thing: %d", 7), 404, "No such thing: 7", false},
		{fmt.Errorf("%w: %w", Refuse(http.StatusConflict, "taken"), secret), 409, "taken", false},
		{fmt.Errorf("%w: %w", secret, syscall.ENOSPC), 500, "The server's disk is full.", true},
		{fmt.Errorf("%w: %w", secret, syscall.EROFS), 500, "The server's disk fails, or is read-only (see the server's log).", true},
		{fmt.Errorf("%w: %w", secret, sqldb.ErrDisk), 500, "The server's disk fails, or is read-only (see the server's log).", true},
		{fmt.Errorf("%w: %w", secret, sqldb.ErrUnavailable), 503, "The server's database does not answer. Try again later.", true},
		{secret, 500, "Unexpected Internal Error (see the server's log).", true},
	} {
		var log strings.Builder
		w := httptest.NewRecorder()
		AnswerError(slog.New(slog.NewTextHandler(&log, nil)), w, httptest.NewRequest(http.MethodGet, "/x", nil), test.err)
		if w.Code != test.status || w.Body.String() != test.body || (log.Len() > 0) != test.logged || w.Header().Get("Retry-After") != "" {
			t.Errorf("%v: %d %s; log %q", test.err, w.Code, w.Body, &log)
		}
	}
	w := httptest.NewRecorder()
	AnswerError(slog.New(slog.DiscardHandler), w, httptest.NewRequest(http.MethodGet, "/x", nil), &RefusalError{Status: 404, RetryAfter: 15 * time.Second})
	if w.Header().Get("Retry-After") != "15" {
		t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
	}
}

// PostgreSQL cannot hold a zero character.
func TestZeroCharactersInJSONAreReplaced(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`"a\u0000b"`: "a\ufffdb", `"a\\u0000b"`: `a\u0000b`, `"a\\\u0000"`: "a\\\ufffd", `"plain"`: "plain",
	} {
		var got string
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		if err := ReadJSON(httptest.NewRecorder(), r, &got); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", body, got, err, want)
		}
	}
}

func TestParametersAreRefusedUnlessTheyAreWhatTheyShouldBe(t *testing.T) {
	t.Parallel()
	q := url.Values{"yes": {"1"}, "maybe": {"2"}, "seven": {"7"}, "minus": {"-1"}, "include": {"a,b"}}
	yes, err := BoolParam(q, "yes", false)
	absent, absentErr := BoolParam(q, "absent", true)
	if _, bad := BoolParam(q, "maybe", false); !yes || !absent || errors.Join(err, absentErr) != nil || !HasStatus(bad, http.StatusBadRequest) {
		t.Errorf("%v %v, %v %v, %v", yes, err, absent, absentErr, bad)
	}
	n := 3
	if err := IntParam(q, "absent", &n); err != nil || n != 3 {
		t.Errorf("absent: %d, %v", n, err)
	}
	if err := IntParam(q, "seven", &n); err != nil || n != 7 {
		t.Errorf("7: %d, %v", n, err)
	}
	if err := IntParam(q, "minus", &n); !HasStatus(err, http.StatusBadRequest) {
		t.Errorf("-1: %v", err)
	}
	if set, err := Includes(q, "a", "b", "c"); err != nil || !set["a"] || !set["b"] || set["c"] {
		t.Errorf("%v, %v", set, err)
	}
	if _, err := Includes(q, "a"); !HasStatus(err, http.StatusBadRequest) {
		t.Errorf("an unknown include: %v", err)
	}
}

func TestAddressOfAClientBehindAProxyIsTheProxys(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "192.0.2.1:4711"
	r.Header.Add("X-Forwarded-For", "203.0.113.9") // a client may send any
	r.Header.Add("X-Forwarded-For", "203.0.113.9, 198.51.100.7")
	if got := ClientAddress(r, false); got != "192.0.2.1" {
		t.Errorf("without a proxy: %s", got)
	}
	if got := ClientAddress(r, true); got != "198.51.100.7" {
		t.Errorf("behind a proxy: %s", got)
	}
}
