package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/sso"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// signInSite is a server with a real provider of OpenID Connect, and a user's cl, which has no password.
type signInSite struct {
	t        *testing.T
	address  string
	home     string
	env      map[string]string
	store    *store.Store
	provider *testenv.OIDCProvider
	// ahead is by how much the clocks of the server and of cl go fast, in nanoseconds.
	ahead atomic.Int64
	// trouble is set while a proxy in front of the server says that the server does not answer.
	trouble atomic.Bool
	// asked gets a value after an answer to a request for tokens, if nobody has taken the one before.
	asked chan struct{}
}

func newSignInSite(t *testing.T) *signInSite {
	t.Helper()
	s := &signInSite{t: t, home: t.TempDir(), asked: make(chan struct{}, 1)}
	var next http.Handler
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/rest/oauth2/token" {
			next.ServeHTTP(w, r)
			return
		}
		if s.trouble.Load() {
			http.Error(w, "no server", http.StatusBadGateway)
		} else {
			next.ServeHTTP(w, r)
		}
		select {
		case s.asked <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(web.Close)
	s.address = web.URL
	s.env = map[string]string{"CODALAB_HOME": s.home, "CL_SERVER": web.URL}
	s.provider = testenv.StartOIDC(t, "../..", testenv.OIDCClient{
		Client: "codalab", Secret: "a secret", Redirect: web.URL + "/rest/sso/callback",
		Accounts: map[string]map[string]any{"s-anna": {"email": "anna@lab.example", "email_verified": true}, "s-ben": {}},
	})
	var err error
	s.store, err = store.Open(t.Context(), t.TempDir())
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, s.store.Close()) })
	for _, name := range []string{userName, colleague} {
		id := codalab.NewUUID()
		testenv.Must(t, s.store.AddUser(t.Context(), store.User{ID: id, Name: name, Joined: store.Time{Time: s.now()}, TimeQuota: 1, DiskQuota: 1 << 40, ParallelRunQuota: 1}))
		_, err := s.store.ChangeUser(t.Context(), id, func(u *store.User) error { u.Email = name + "@lab.example"; return nil })
		testenv.Must(t, err)
	}
	next = server.New(server.Config{Store: s.store, Now: s.now, PasswordCost: server.PasswordCost{Passes: 1, KiB: 8}, SSO: sso.Options{
		Issuer: s.provider.Issuer, ClientID: "codalab", ClientSecret: func() (string, error) { return "a secret", nil },
		URL: web.URL, Interval: time.Nanosecond,
	}}).Handler()
	return s
}

func (s *signInSite) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// cl runs cl without a terminal. said gets what it prints on standard error.
func (s *signInSite) cl(ctx context.Context, said io.Writer, args ...string) result {
	var stdout, stderr bytes.Buffer
	err := run(ctx, program.Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: io.MultiWriter(&stderr, said), Now: s.now,
		Getenv: func(name string) string { return s.env[name] },
	})
	text := stderr.String()
	if err != nil {
		text += err.Error()
	}
	return result{program.Code(ctx, err), err, stdout.String(), text}
}

// works runs a command, which has to succeed, and returns its output.
func (s *signInSite) works(args ...string) string {
	s.t.Helper()
	r := s.cl(s.t.Context(), io.Discard, args...)
	if r.code != 0 {
		s.t.Fatalf("cl %q: %+v", args, r)
	}
	return r.stdout
}

// tokens returns the tokens that cl has kept.
func (s *signInSite) tokens() (all []client.Token) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.home, "cl-tokens", "*.json"))
	testenv.Must(s.t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		testenv.Must(s.t, err)
		if info.Mode().Perm() != 0o600 {
			s.t.Errorf("%s has the mode %v", file, info.Mode())
		}
		data, err := os.ReadFile(file)
		testenv.Must(s.t, err)
		var one client.Token
		testenv.Must(s.t, json.Unmarshal(data, &one))
		all = append(all, one)
	}
	return all
}

// signIn is a cl login --sso that waits.
type signIn struct {
	*signInSite
	page, code string
	ended      chan result
}

// whenSaid sends what matches a pattern, once.
type whenSaid struct {
	pattern *regexp.Regexp
	text    string
	found   chan []string
}

// Write looks for the pattern.
func (w *whenSaid) Write(p []byte) (int, error) {
	w.text += string(p)
	if m := w.pattern.FindStringSubmatch(w.text); m != nil {
		w.found <- m
		w.text = ""
	}
	return len(p), nil
}

// begin starts cl login --sso, and returns once it has shown its code and the server has refused it the tokens.
func (s *signInSite) begin(ctx context.Context, args ...string) signIn {
	s.t.Helper()
	shown := regexp.MustCompile(`^Open (http://127\.0\.0\.1:\d+/rest/sso) in a browser, on this machine or another one,\nand type the code ([B-Z]{4}-[B-Z]{4}) there within 10m\.\n$`)
	said := &whenSaid{pattern: shown, found: make(chan []string, 1)}
	waits := signIn{signInSite: s, ended: make(chan result, 1)}
	go func() { waits.ended <- s.cl(ctx, said, append([]string{"login", "--sso"}, args...)...) }()
	select {
	case found := <-said.found:
		waits.page, waits.code = found[1], found[2]
	case r := <-waits.ended:
		s.t.Fatalf("it shows no code: %+v", r)
	}
	waits.asks(2) // the first may be of before
	return waits
}

// asks returns once the server has answered some requests for tokens.
func (w signIn) asks(times int) {
	w.t.Helper()
	for range times {
		select {
		case <-w.asked:
		case r := <-w.ended:
			w.t.Fatalf("it does not wait: %+v", r)
		}
	}
}

// answer types the code into the page and answers its question, and goes on to the provider unless the answer is deny.
func (w signIn) answer(answer, subject string) testenv.Page {
	w.t.Helper()
	b := testenv.NewBrowser(w.t, http.DefaultClient)
	form := url.Values{"code": {strings.ToLower(w.code)}, "answer": {answer}}
	form.Set("mark", b.Open(http.MethodGet, w.page, nil).Part(w.t, `name="mark" value="([^"]+)"`))
	p := b.Open(http.MethodPost, w.page, form)
	if to := p.Next(w.t); to != "" {
		p = b.Open(http.MethodGet, b.LogIn(w.provider, to, subject, w.address), nil)
	}
	return p
}

// Tokens of a sign-in by a browser are used and kept as those of a password.
func TestLoginByABrowserLetsClIn(t *testing.T) {
	t.Parallel()
	s := newSignInSite(t)
	if r := s.cl(t.Context(), io.Discard, "ls"); r.code != program.ExitFailure || !strings.HasSuffix(r.stderr, "or run cl login --sso") {
		t.Errorf("before: %+v", r)
	}
	waits := s.begin(t.Context(), "--json")
	s.trouble.Store(true) // cl outlives that
	waits.asks(3)
	s.trouble.Store(false)
	if p := waits.answer("allow", "s-anna"); p.Status != http.StatusOK || !strings.Contains(p.Body, "cl is signed in as anna.") {
		t.Errorf("%d %s", p.Status, p.Body)
	}
	r := <-waits.ended
	if want := `{"address":"` + s.address + `","user":"anna"}`; r.code != 0 || strings.Join(strings.Fields(r.stdout), "") != want {
		t.Errorf("%+v, want %s", r, want)
	}
	kept := s.tokens()
	if len(kept) != 1 || kept[0].Access == "" || kept[0].Refresh == "" {
		t.Fatalf("%+v", kept)
	}
	s.works("ls")
	if got := s.works("uinfo"); !strings.Contains(got, userName) {
		t.Errorf("%s", got)
	}
	if got := s.works("work"); !strings.Contains(got, "home-anna") {
		t.Errorf("%s", got)
	}
	s.ahead.Store(int64(24 * time.Hour)) // the access token has ended
	s.works("ls")
	if renewed := s.tokens(); len(renewed) != 1 || renewed[0].Access == kept[0].Access {
		t.Errorf("%+v", renewed)
	}
	s.works("logout")
	if r := s.cl(t.Context(), io.Discard, "ls"); r.code != program.ExitFailure {
		t.Errorf("after: %+v", r)
	}
}

// The mark by which the server knows this machine at sign-ins with a password outlives a sign-in by a browser.
func TestLoginByABrowserKeepsTheMarkOfPasswords(t *testing.T) {
	t.Parallel()
	s := newSignInSite(t)
	u, err := s.store.User(t.Context(), userName)
	testenv.Must(t, err)
	_, err = s.store.SetPassword(t.Context(), store.NewPassword{UserID: u.ID, Hashed: server.HashPassword(password, server.PasswordCost{Passes: 1, KiB: 8})}, s.now())
	testenv.Must(t, err)
	s.env["CODALAB_USERNAME"], s.env["CODALAB_PASSWORD"] = userName, password
	s.works("ls")
	before := s.tokens()
	if len(before) != 1 || before[0].Device == "" {
		t.Fatalf("%+v", before)
	}
	waits := s.begin(t.Context())
	waits.answer("allow", "s-anna")
	if r := <-waits.ended; r.code != 0 || r.stdout != "Signed in to "+s.address+" as anna\n" {
		t.Errorf("%+v", r)
	}
	if after := s.tokens(); len(after) != 1 || after[0].Device != before[0].Device || after[0].Access == before[0].Access {
		t.Errorf("%+v, before %+v", after, before)
	}
}

// A person whom the server does not know gives the operator a line, and goes on with the same code.
func TestLoginByABrowserWaitsForTheOperator(t *testing.T) {
	t.Parallel()
	s := newSignInSite(t)
	s.env["CODALAB_USERNAME"] = userName
	waits := s.begin(t.Context())
	p := waits.answer("allow", "s-ben")
	if line := "cl-server user link YOUR-NAME --oidc-issuer " + s.provider.Issuer + " --oidc-subject s-ben"; p.Status != http.StatusForbidden || !strings.Contains(p.Body, line) {
		t.Errorf("%d %s", p.Status, p.Body)
	}
	ben, err := s.store.User(t.Context(), colleague)
	testenv.Must(t, err)
	testenv.Must(t, s.store.Link(t.Context(), store.Identity{Issuer: s.provider.Issuer, Subject: "s-ben", UserID: ben.ID}))
	waits.answer("allow", "s-ben")
	if r := <-waits.ended; r.code != 0 || !strings.HasSuffix(r.stderr, "\nCODALAB_USERNAME is anna: unset it to go on as ben\n") {
		t.Errorf("%+v", r)
	}
	delete(s.env, "CODALAB_USERNAME")
	if got := s.works("uinfo"); !strings.Contains(got, colleague) {
		t.Errorf("%s", got)
	}
}

// Nothing is kept of a sign-in that does not end well.
func TestLoginByABrowserThatFailsIsOneSentence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(waits signIn, interrupt func())
		code int
		says string
	}{
		"denied on the page":    {func(w signIn, _ func()) { w.answer("deny", "") }, program.ExitFailure, "UsageError: nobody has signed in: the sign-in was refused in the browser; run cl login --sso again"},
		"denied at its service": {func(w signIn, _ func()) { w.answer("allow", "") }, program.ExitFailure, "UsageError: nobody has signed in: the sign-in was refused in the browser; run cl login --sso again"},
		"too late":              {func(w signIn, _ func()) { w.ahead.Store(int64(11 * time.Minute)) }, program.ExitFailure, "UsageError: nobody has signed in in time; run cl login --sso again"},
		"the server has gone": {func(w signIn, _ func()) {
			w.trouble.Store(true)
			w.ahead.Store(int64(11 * time.Minute))
		}, program.ExitTransient, "ServerError: no server"},
		"interrupted": {func(_ signIn, interrupt func()) { interrupt() }, program.ExitInterrupted, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSignInSite(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			waits := s.begin(ctx)
			test.end(waits, interrupt)
			r := <-waits.ended
			if r.code != test.code || r.stdout != "" || r.err == nil || !strings.HasSuffix(r.err.Error(), test.says) || strings.Contains(r.err.Error(), "\n") {
				t.Errorf("%+v, want %d %s", r, test.code, test.says)
			}
			if kept := s.tokens(); len(kept) > 0 {
				t.Errorf("%+v", kept)
			}
		})
	}
}

// Servers without a provider say so: ours, an older one, and CodaLab's own.
func TestLoginByABrowserNeedsAProvider(t *testing.T) {
	t.Parallel()
	ours := newTransferSite(t, 1)
	for name, answer := range map[string]http.HandlerFunc{
		"ours": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, ours.address+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"CodaLab's": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "Not found: '"+r.URL.Path+"'", http.StatusNotFound)
		},
		"an older one": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := httptest.NewServer(answer)
			t.Cleanup(web.Close)
			s := &signInSite{t: t, env: map[string]string{"CODALAB_HOME": t.TempDir(), "CL_SERVER": "http://127.0.0.1:1"}}
			r := s.cl(t.Context(), io.Discard, "login", "--sso", web.URL+"::")
			if want := "UsageError: the server at " + web.URL + " has no sign-in by a browser; cl login asks for a password"; r.code != program.ExitFailure || r.stderr != want || r.stdout != "" {
				t.Errorf("%+v", r)
			}
		})
	}
}
