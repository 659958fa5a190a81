package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

func TestOneOfManyCallersGetsTheToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { say(w, `{"data": {}}`) })
	c := s.client(t, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := c.User(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.grants.Load(); n != 1 {
		t.Errorf("%d tokens were got, want 1", n)
	}
}

func TestRefusedTokenIsRenewedOnce(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		http.Error(w, "User is not verified.", http.StatusUnauthorized)
	})
	c := s.client(t, nil)
	_, err := c.User(t.Context())
	refused := wantStatus(t, err, http.StatusUnauthorized)
	if refused.Message != "User is not verified." || refused.Transient() {
		t.Errorf("got %v, transient %v", refused, refused.Transient())
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

func TestTokenIsRenewedBeforeItRunsOut(t *testing.T) {
	t.Parallel()
	var tokens []string
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		say(w, `{"data": {}}`)
	})
	now := time.Unix(1_800_000_000, 0)
	c := s.client(t, func(o *client.Options) { o.Now = func() time.Time { return now } })
	for _, later := range []time.Duration{0, 50 * time.Minute, 6 * time.Minute} {
		now = now.Add(later)
		if _, err := c.User(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"Bearer token1", "Bearer token1", "Bearer token2"}
	if diff := cmp.Diff(want, tokens); diff != "" {
		t.Error(diff)
	}
}

func TestWrongPasswordIsPermanentAndSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.refuse = `{"error": "invalid_grant", "error_description": "Invalid credentials given."}`
	_, err := s.client(t, nil).User(t.Context())
	refused := wantStatus(t, err, http.StatusUnauthorized)
	if !errors.Is(err, client.ErrCredentials) || refused.Transient() {
		t.Errorf("got %v, transient %v, want ErrCredentials", err, refused.Transient())
	}
	want := fmt.Sprintf("wrong user name or password: the server at %s refuses user %q", s.URL, "anna")
	if refused.Message != want {
		t.Errorf("got message %q, want %q", refused.Message, want)
	}
}

// memory is a token cache in memory.
type memory struct{ token client.Token }

func (m *memory) Load() client.Token  { return m.token }
func (m *memory) Save(t client.Token) { m.token = t }

func TestTokenOfAnotherProcessIsUsed(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { say(w, `{"data": {}}`) })
	cache := &memory{}
	if _, err := s.client(t, func(o *client.Options) { o.Tokens = cache }).User(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := s.client(t, func(o *client.Options) {
		o.Tokens = cache
		o.Credentials = func(context.Context) (string, string, error) {
			return "", "", errors.New("nobody is there to ask")
		}
	})
	if _, err := other.User(t.Context()); err != nil {
		t.Error(err)
	}
	if n := s.grants.Load(); n != 1 {
		t.Errorf("%d tokens were got, want 1", n)
	}
}

// given returns an option with a token that a test may change.
func given(token *atomic.Pointer[string]) func(*client.Options) {
	return func(o *client.Options) {
		o.Credentials = nil
		o.Token = func(context.Context) (string, error) { return *token.Load(), nil }
	}
}

func TestGivenTokenIsReadAgainWhenItIsRefused(t *testing.T) {
	t.Parallel()
	var valid, has atomic.Pointer[string]
	first, second := "first", "second"
	valid.Store(&first)
	has.Store(&first)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/rest/user" {
			t.Errorf("the client calls %s", r.URL.Path)
		}
		if r.Header.Get("Authorization") != "Bearer "+*valid.Load() {
			http.Error(w, "User is not authenticated.", http.StatusUnauthorized)
			return
		}
		say(w, `{"data": {}}`)
	}))
	t.Cleanup(web.Close)
	c := (&site{Server: web}).client(t, given(&has))
	ask := func() error {
		_, err := c.User(t.Context())
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	valid.Store(&second)
	err := ask()
	refused := wantStatus(t, err, http.StatusUnauthorized)
	if !errors.Is(err, client.ErrToken) || refused.Transient() || refused.Message != "the server at "+web.URL+": the token has ended or was revoked" {
		t.Errorf("%v, transient %v", err, refused.Transient())
	}
	has.Store(&second)
	if err := ask(); err != nil {
		t.Error(err)
	}
}

func TestWorkerTokenIsAskedForAndRevoked(t *testing.T) {
	t.Parallel()
	var got []string
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.EscapedPath()+" "+string(body))
		say(w, `{"access_token": "t", "token_type": "Bearer", "expires_in": 90, "scope": "worker"}`)
	})
	token, err := s.client(t, nil).WorkerToken(t.Context(), "host-(1)", 90*time.Second)
	if err != nil || token != "t" {
		t.Errorf("%q, %v", token, err)
	}
	if diff := cmp.Diff([]string{`POST /rest/workers/host-%281%29/token {"seconds":90}`}, got); diff != "" {
		t.Error(diff)
	}
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/rest/oauth2/revoke" || r.FormValue("token") != "t" || strings.HasPrefix(r.Header.Get("Authorization"), "Bearer") {
			t.Errorf("%s %v", r.URL.Path, r.Header)
		}
	}))
	t.Cleanup(web.Close)
	if err := (&site{Server: web}).client(t, nil).RevokeToken(t.Context(), "t"); err != nil {
		t.Error(err)
	}
}

func TestServerWithoutWorkerTokensIsToldApart(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{404: true, 405: true, 403: false, 500: false, 401: false} {
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) })
		_, err := s.client(t, nil).WorkerToken(t.Context(), "w", time.Hour)
		if errors.Is(err, errors.ErrUnsupported) != want || err == nil {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// renewing is a server that renews worker tokens, and stores the tokens of the requests.
type renewing struct {
	*site
	valid  map[string]bool
	used   []string
	renew  string // the answer to a renewal; empty for a failure
	status int    // of a failure
}

func newRenewing(t *testing.T) *renewing {
	t.Helper()
	s := &renewing{valid: map[string]bool{"first": true}, status: http.StatusBadGateway}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		s.used = append(s.used, r.Method+" "+r.URL.EscapedPath()+" "+token)
		switch {
		case !s.valid[token]:
			http.Error(w, "User is not authenticated.", http.StatusUnauthorized)
		case r.Method == http.MethodGet:
			say(w, `{"data": {}}`)
		case s.renew == "":
			http.Error(w, "no", s.status)
		default:
			say(w, "%s", s.renew)
		}
	}))
	t.Cleanup(web.Close)
	s.site = &site{Server: web}
	return s
}

func TestRenewedTokenReplacesTheGivenOneInMemory(t *testing.T) {
	t.Parallel()
	s := newRenewing(t)
	var has atomic.Pointer[string]
	first := "first"
	has.Store(&first)
	c := s.client(t, given(&has))
	s.renew = `{"access_token": "second", "token_type": "Bearer", "expires_in": 90.5, "scope": "worker", "latest_expires_in": 3600}`
	life, err := c.RenewWorkerToken(t.Context(), "w/1")
	if want := (client.TokenLife{Left: 90500 * time.Millisecond, Latest: time.Hour}); err != nil || life != want {
		t.Errorf("%+v, %v, want %+v", life, err, want)
	}
	s.valid["second"] = true
	ask := func() {
		t.Helper()
		if _, err := c.User(t.Context()); err != nil {
			t.Error(err)
		}
	}
	ask()
	delete(s.valid, "second") // the server has lost it: the given one is valid still
	if _, err := c.RenewWorkerToken(t.Context(), "w/1"); !codalab.IsStatus(err, http.StatusUnauthorized) {
		t.Errorf("the renewed token is renewed by another one: %v", err)
	}
	ask()
	want := []string{
		"POST /rest/workers/w%2F1/token first", "GET /rest/user second",
		"POST /rest/workers/w%2F1/token second", // and not the given one: that would be a new start of the worker
		"GET /rest/user second", "GET /rest/user first",
	}
	if diff := cmp.Diff(want, s.used); diff != "" {
		t.Error(diff)
	}
}

// A worker was cut off for days, and has begun again elsewhere. The server has ended its renewed token, and the given one is
// valid. Its next renewal must not be a further start, which would end the program that is the worker now.
func TestReplacedWorkerRenewsNoMore(t *testing.T) {
	t.Parallel()
	s := newRenewing(t)
	var has atomic.Pointer[string]
	first := "first"
	has.Store(&first)
	c := s.client(t, given(&has))
	s.renew = `{"access_token": "second", "token_type": "Bearer", "expires_in": 90.5, "scope": "worker", "latest_expires_in": 3600}`
	_, err := c.RenewWorkerToken(t.Context(), "w/1") // the server does not know the second one
	if err != nil {
		t.Fatal(err)
	}
	s.renew, s.status = "", http.StatusGone
	if _, err := c.CheckIn(t.Context(), "w/1", codalab.CheckIn{}); !codalab.IsStatus(err, http.StatusGone) {
		t.Errorf("the check-in: %v", err)
	}
	s.used = nil
	if _, err := c.RenewWorkerToken(t.Context(), "w/1"); !codalab.IsStatus(err, http.StatusGone) || len(s.used) > 0 {
		t.Errorf("it renews: %v, %q", err, s.used)
	}
}

func TestTokenIsUsedOnAfterAFailedRenewal(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"", "<html>", "{}", `{"access_token": "x"}`, `{"expires_in": 5}`} {
		s := newRenewing(t)
		var has atomic.Pointer[string]
		first := "first"
		has.Store(&first)
		c := s.client(t, given(&has))
		s.renew = answer
		if life, err := c.RenewWorkerToken(t.Context(), "w"); err == nil {
			t.Errorf("%q: %+v", answer, life)
		}
		if _, err := c.User(t.Context()); err != nil || s.used[len(s.used)-1] != "GET /rest/user first" {
			t.Errorf("%q: %v, %q", answer, err, s.used)
		}
	}
}

func TestEndOfAWorkersTokensIsAskedFor(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{204: nil, 404: errors.ErrUnsupported, 405: errors.ErrUnsupported} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Method + " " + r.URL.EscapedPath(); got != "DELETE /rest/workers/host-%281%29/token" {
				t.Error(got)
			}
			w.WriteHeader(status)
		})
		if err := s.client(t, nil).EndWorkerTokens(t.Context(), "host-(1)"); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", status, err, want)
		}
	}
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) })
	var failed *codalab.Error
	if err := s.client(t, nil).EndWorkerTokens(t.Context(), "w"); !errors.As(err, &failed) || !failed.Transient() {
		t.Error(err)
	}
}

func TestServerWithoutEnergyIsToldApart(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{200: nil, 404: errors.ErrUnsupported, 405: errors.ErrUnsupported} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if got := r.Method + " " + r.URL.EscapedPath() + " " + string(body); got != `POST /rest/workers/site-gpu/energy {"runs":[{"uuid":"0x1","energy_joules":7}]}` || err != nil {
				t.Error(got, err)
			}
			w.WriteHeader(status)
		})
		if err := s.client(t, nil).TellEnergy(t.Context(), "site-gpu", []codalab.RunEnergy{{UUID: "0x1", Joules: 7}}); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", status, err, want)
		}
	}
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	if err := s.client(t, nil).TellEnergy(t.Context(), "w", nil); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func TestServerWithoutClaimsInOneCallIsToldApart(t *testing.T) {
	t.Parallel()
	in := []codalab.BundleStart{{UUID: "0x1", StartBundle: codalab.StartBundle{Hostname: "h", StartTime: 7}}, {UUID: "0x2"}}
	for status, want := range map[int]error{200: nil, 404: errors.ErrUnsupported, 405: errors.ErrUnsupported} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			want := `POST /rest/workers/site-gpu/start_bundles {"bundles":[{"uuid":"0x1","hostname":"h","start_time":7},{"uuid":"0x2","hostname":"","start_time":0}]}`
			if got := r.Method + " " + r.URL.EscapedPath() + " " + string(body); got != want || err != nil {
				t.Error(got, err)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"bundles":[{"uuid":"0x1","started":true},{"uuid":"0x2","started":false,"status":404,"message":"m"}]}`)
		})
		got, err := s.client(t, nil).StartBundles(t.Context(), "site-gpu", in)
		if !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", status, err, want)
		}
		answers := []codalab.StartedBundle{{UUID: "0x1", Started: true}, {UUID: "0x2", Status: 404, Message: "m"}}
		if err == nil && !slices.Equal(got, answers) {
			t.Errorf("%+v", got)
		}
	}
	for _, body := range []string{`{"bundles":[]}`, `{"bundles":[{"uuid":"0x2"},{"uuid":"0x1"}]}`, `[]`} {
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		if _, err := s.client(t, nil).StartBundles(t.Context(), "w", in); err == nil {
			t.Errorf("%s is an answer", body)
		}
	}
}
