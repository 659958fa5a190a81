package server_test

import (
	"context"
	"encoding/json"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/sso"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// ssoSite is a site with a real provider of OpenID Connect. Browsers reach it by https.
type ssoSite struct {
	*site
	web      *httptest.Server
	provider *testenv.OIDCProvider
	ahead    atomic.Int64 // the server's clock, in nanoseconds
	log      *logText
}

// logText is a log that several goroutines write.
type logText struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write adds a line.
func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all lines.
func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// people are the provider's accounts, by their subjects.
func people() map[string]map[string]any {
	person := func(email string, verified any, name string) map[string]any {
		return map[string]any{"email": email, "email_verified": verified, "preferred_username": name}
	}
	return map[string]map[string]any{
		"s-alice": person("Alice@lab.example", true, "a.liddell"), "s-claim": person("alice@lab.example", false, "alice"),
		"s-text": person("alice@lab.example", "true", ""), "s-root": person("root@lab.example", true, "root"),
		"s-two": person("two@lab.example", true, "two"), "s-bob": person("", nil, "bob"), "s-new": person("new@lab.example", true, "newcomer"),
		"s-odd": person("", nil, "a b/c"), "s-robot": person("robot@lab.example", true, "robot"),
	}
}

func newSSOSite(t *testing.T, conform bool, change ...func(*sso.Options)) *ssoSite {
	t.Helper()
	s := &ssoSite{log: &logText{}}
	s.web = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }))
	t.Cleanup(s.web.Close)
	s.provider = testenv.StartOIDC(t, "..", testenv.OIDCClient{
		Client: "codalab", Secret: "a secret of the client", Redirect: s.web.URL + "/rest/sso/callback", Accounts: people(), Conform: conform,
	})
	s.site = newSite(t, func(c *server.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
		c.Log = slog.New(slog.NewTextHandler(s.log, nil))
		c.SSO = sso.Options{
			Issuer: s.provider.Issuer, ClientID: "codalab", ClientSecret: func() (string, error) { return "a secret of the client", nil },
			URL: s.web.URL, Interval: time.Nanosecond,
		}
		for _, one := range change {
			one(&c.SSO)
		}
	})
	s.setEmail("alice", "alice@lab.example")
	s.setEmail("root", "root@lab.example")
	for _, name := range []string{"twin1", "xtwin"} {
		s.addUser(name)
		s.setEmail(name, "two@lab.example")
	}
	return s
}

func (s *ssoSite) setEmail(name, email string) {
	s.t.Helper()
	u, err := s.store.User(context.Background(), name)
	must(s.t, err)
	_, err = s.store.ChangeUser(context.Background(), u.ID, func(u *store.User) error { u.Email = email; return nil })
	must(s.t, err)
}

// begin begins the sign-in of a program.
func (s *ssoSite) begin() (codes codalab.DeviceAnswer) {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/rest/oauth2/device_authorization", nil)
	r.SetBasicAuth("codalab_cli_client", "")
	must(s.t, json.Unmarshal([]byte(s.send(r).ok().body), &codes))
	return codes
}

// redeem asks for the program's tokens.
func (s *ssoSite) redeem(codes codalab.DeviceAnswer) answer {
	s.t.Helper()
	return s.grant("codalab_cli_client", url.Values{"grant_type": {codalab.DeviceGrant}, "device_code": {codes.DeviceCode}})
}

// browser is a person's browser, which keeps cookies and follows no redirection by itself.
type browser struct {
	*ssoSite
	http *http.Client
}

func (s *ssoSite) browser() browser {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	must(s.t, err)
	c := *s.web.Client()
	c.Jar, c.CheckRedirect = jar, func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return browser{s, &c}
}

// shown is a page.
type shown struct {
	status int
	header http.Header
	body   string
	at     *url.URL
}

func (b browser) open(method, address string, form url.Values) shown {
	b.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, address, strings.NewReader(form.Encode()))
	must(b.t, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.http.Do(r)
	must(b.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must(b.t, err)
	return shown{resp.StatusCode, resp.Header, string(body), r.URL}
}

// next returns the address of a redirection; empty if it is none.
func (p shown) next(tb testing.TB) string {
	tb.Helper()
	to := p.header.Get("Location")
	if to == "" {
		return ""
	}
	u, err := p.at.Parse(to)
	must(tb, err)
	return u.String()
}

func (p shown) part(tb testing.TB, pattern string) string {
	tb.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(p.body)
	if m == nil {
		tb.Fatalf("no %s in %d %s", pattern, p.status, p.body)
	}
	return html.UnescapeString(m[1])
}

// ask types a code into the server's page, and returns the question and its mark.
func (b browser) ask(code string) (question shown, mark string) {
	b.t.Helper()
	mark = b.open(http.MethodGet, b.web.URL+"/rest/sso", nil).part(b.t, `name="mark" value="([^"]+)"`)
	return b.open(http.MethodPost, b.web.URL+"/rest/sso", url.Values{"mark": {mark}, "code": {code}}), mark
}

// allow goes on to the provider, and returns the address there.
func (b browser) allow(codes codalab.DeviceAnswer) string {
	b.t.Helper()
	question, mark := b.ask(codes.UserCode)
	if question.status != http.StatusOK || !strings.Contains(question.body, codes.UserCode) || !strings.Contains(question.body, "192.0.2.1") {
		b.t.Fatalf("the page does not ask: %d %s", question.status, question.body)
	}
	sent := b.open(http.MethodPost, b.web.URL+"/rest/sso", url.Values{"mark": {mark}, "code": {codes.UserCode}, "answer": {"allow"}})
	if sent.status != http.StatusSeeOther || !strings.HasPrefix(sent.next(b.t), b.provider.Issuer) {
		b.t.Fatalf("the browser is not sent to the provider: %d %s", sent.status, sent.body)
	}
	return sent.next(b.t)
}

// logIn logs in at the provider and consents there, and returns the address to which the provider sends the browser.
func (b browser) logIn(address, subject string) string {
	b.t.Helper()
	for range 10 {
		p := b.open(http.MethodGet, address, nil)
		for p.next(b.t) == "" {
			form := url.Values{"prompt": {p.part(b.t, `name="prompt" value="([^"]+)"`)}, "login": {subject}, "password": {"any"}}
			if subject == "" {
				p = b.open(http.MethodGet, b.provider.Issuer+p.part(b.t, `href="(?:`+regexp.QuoteMeta(b.provider.Issuer)+`)?(/[^"]*abort)"`), nil)
				continue
			}
			p = b.open(http.MethodPost, p.part(b.t, `action="([^"]+)"`), form)
		}
		if address = p.next(b.t); strings.HasPrefix(address, b.web.URL) {
			return address
		}
	}
	b.t.Fatalf("the provider does not end: %s", address)
	return ""
}

// signIn signs a person in, and returns the last page.
func (b browser) signIn(codes codalab.DeviceAnswer, subject string) shown {
	b.t.Helper()
	return b.open(http.MethodGet, b.logIn(b.allow(codes), subject), nil)
}

// signedIn checks that a program has got the tokens of a user.
func (s *ssoSite) signedIn(codes codalab.DeviceAnswer, user string) {
	s.t.Helper()
	got := s.redeem(codes).ok()
	s.tokens["program"] = got.text("access_token")
	if name := s.get("program", "/user").ok().text("data", "attributes", "user_name"); name != user {
		s.t.Errorf("the program is %s's, want %s", name, user)
	}
	s.grant("codalab_cli_client", url.Values{"grant_type": {"refresh_token"}, "refresh_token": {got.text("refresh_token")}}).ok()
	s.redeem(codes).says(http.StatusBadRequest, `"expired_token"`) // once
}

// A person with a verified e-mail address that the operator has entered is that user: the provider tells the address in its
// token, or at its userinfo endpoint.
func TestBrowserSignsAProgramIn(t *testing.T) {
	t.Parallel()
	for name, conform := range map[string]bool{"claims in the token": false, "claims at the endpoint": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSSOSite(t, conform)
			codes := s.begin()
			if !regexp.MustCompile(`^[B-Z]{4}-[B-Z]{4}$`).MatchString(codes.UserCode) || codes.Page != s.web.URL+"/rest/sso" || codes.Seconds != 600 {
				t.Errorf("%+v", codes)
			}
			s.redeem(codes).says(http.StatusBadRequest, `"authorization_pending"`)
			last := s.browser().signIn(codes, "s-alice")
			if last.status != http.StatusOK || !strings.Contains(last.body, "cl is signed in as alice.") {
				t.Fatalf("%d %s", last.status, last.body)
			}
			s.signedIn(codes, "alice")

			s.setEmail("alice", "other@lab.example") // she is known by her subject now
			s.setEmail("bob", "alice@lab.example")
			again := s.begin()
			s.browser().signIn(again, "s-alice")
			s.signedIn(again, "alice")
			for _, secret := range []string{codes.DeviceCode, codes.UserCode, s.tokens["program"], "code=", "a secret of the client"} {
				if strings.Contains(s.log.String(), secret) {
					t.Errorf("%s is in the log: %s", secret, s.log)
				}
			}
		})
	}
}

func TestPagesOfASignInAreClosedToOtherSites(t *testing.T) {
	t.Parallel()
	s := newSSOSite(t, false)
	b := s.browser()
	p := b.open(http.MethodGet, s.web.URL+"/rest/sso", nil)
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'", "Cache-Control": "no-store",
		"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
	} {
		if got := p.header.Get(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	cookie := p.header.Get("Set-Cookie")
	for _, want := range []string{"__Host-cl-sso=", "; Path=/", "; HttpOnly", "; Secure", "; SameSite=Lax"} {
		if !strings.Contains(cookie, want) || strings.Contains(cookie, "Domain") {
			t.Errorf("the cookie %s lacks %s", cookie, want)
		}
	}
	codes := s.begin()
	for name, form := range map[string]url.Values{
		"no mark":        {"code": {codes.UserCode}, "answer": {"allow"}},
		"another's mark": {"code": {codes.UserCode}, "answer": {"allow"}, "mark": {s.browser().open(http.MethodGet, s.web.URL+"/rest/sso", nil).part(t, `name="mark" value="([^"]+)"`)}},
	} {
		if p := b.open(http.MethodPost, s.web.URL+"/rest/sso", form); p.status != http.StatusForbidden {
			t.Errorf("%s: %d", name, p.status)
		}
	}
	if p := b.open(http.MethodGet, s.web.URL+"/rest/sso?code="+codes.UserCode, nil); strings.Contains(p.body, codes.UserCode) {
		t.Error("a link fills the code in")
	}
}

func TestStolenAndForgedSignInsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSSOSite(t, false)
	change := func(address string, change func(q url.Values)) string {
		u, err := url.Parse(address)
		must(t, err)
		q := u.Query()
		change(q)
		u.RawQuery = q.Encode()
		return u.String()
	}
	//nolint:paralleltest // they share a server, whose requests fail the outer test
	for name, attack := range map[string]func(b browser, codes codalab.DeviceAnswer) shown{
		"wrong state": func(b browser, codes codalab.DeviceAnswer) shown {
			back := b.logIn(b.allow(codes), "s-alice")
			return b.open(http.MethodGet, change(back, func(q url.Values) { q.Set("state", "x") }), nil)
		},
		"no state": func(b browser, codes codalab.DeviceAnswer) shown {
			back := b.logIn(b.allow(codes), "s-alice")
			return b.open(http.MethodGet, change(back, func(q url.Values) { q.Del("state") }), nil)
		},
		"another nonce": func(b browser, codes codalab.DeviceAnswer) shown {
			to := change(b.allow(codes), func(q url.Values) { q.Set("nonce", "x") })
			return b.open(http.MethodGet, b.logIn(to, "s-alice"), nil)
		},
		"without PKCE's proof": func(b browser, codes codalab.DeviceAnswer) shown {
			to := change(b.allow(codes), func(q url.Values) { q.Set("code_challenge", strings.Repeat("x", 43)) })
			return b.open(http.MethodGet, b.logIn(to, "s-alice"), nil)
		},
		"another issuer": func(b browser, codes codalab.DeviceAnswer) shown {
			back := b.logIn(b.allow(codes), "s-alice")
			return b.open(http.MethodGet, change(back, func(q url.Values) { q.Set("iss", "https://evil.example") }), nil)
		},
		"another browser": func(b browser, codes codalab.DeviceAnswer) shown {
			other := s.browser()
			other.open(http.MethodGet, s.web.URL+"/rest/sso", nil) // it has a cookie of its own
			return other.open(http.MethodGet, b.logIn(b.allow(codes), "s-alice"), nil)
		},
		"another's code": func(b browser, codes codalab.DeviceAnswer) shown {
			victim := s.browser()
			stolen, err := url.Parse(victim.logIn(victim.allow(s.begin()), "s-alice"))
			must(t, err)
			back := b.logIn(b.allow(codes), "s-new")
			return b.open(http.MethodGet, change(back, func(q url.Values) { q.Set("code", stolen.Query().Get("code")) }), nil)
		},
		"an invented code": func(b browser, codes codalab.DeviceAnswer) shown {
			back := b.logIn(b.allow(codes), "s-alice")
			return b.open(http.MethodGet, change(back, func(q url.Values) { q.Set("code", "x") }), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			codes := s.begin()
			if p := attack(s.browser(), codes); p.status < 400 || !strings.Contains(p.body, "Run cl login --sso again") {
				t.Errorf("%d %s", p.status, p.body)
			}
			s.redeem(codes).says(http.StatusBadRequest, `"authorization_pending"`)
		})
	}
	t.Run("replayed", func(t *testing.T) {
		codes, b := s.begin(), s.browser()
		back := b.logIn(b.allow(codes), "s-alice")
		if p := b.open(http.MethodGet, back, nil); p.status != http.StatusOK {
			t.Fatalf("%d %s", p.status, p.body)
		}
		if p := b.open(http.MethodGet, back, nil); p.status != http.StatusBadRequest {
			t.Errorf("a second time: %d %s", p.status, p.body)
		}
	})
}

func TestSignInThatIsRefusedOrTooLateGivesNoTokens(t *testing.T) {
	t.Parallel()
	s := newSSOSite(t, false)
	refused, b := s.begin(), s.browser()
	_, mark := b.ask(refused.UserCode)
	if p := b.open(http.MethodPost, s.web.URL+"/rest/sso", url.Values{"mark": {mark}, "code": {refused.UserCode}, "answer": {"deny"}}); p.status != http.StatusOK {
		t.Errorf("%d %s", p.status, p.body)
	}
	s.redeem(refused).says(http.StatusBadRequest, `"access_denied"`)

	atProvider := s.begin()
	if p := s.browser().signIn(atProvider, ""); p.status != http.StatusOK || !strings.Contains(p.body, "The program was not signed in.") {
		t.Errorf("%d %s", p.status, p.body)
	}
	s.redeem(atProvider).says(http.StatusBadRequest, `"access_denied"`)

	late, mine := s.begin(), s.browser()
	back := mine.logIn(mine.allow(late), "s-alice")
	s.ahead.Store(int64(11 * time.Minute))
	if p := mine.open(http.MethodGet, back, nil); p.status != http.StatusBadRequest {
		t.Errorf("%d %s", p.status, p.body)
	}
	s.redeem(late).says(http.StatusBadRequest, `"expired_token"`)
	if p, _ := s.browser().ask(late.UserCode); p.status != http.StatusNotFound {
		t.Errorf("an old code: %d", p.status)
	}
	early := s.begin()
	s.ahead.Store(-int64(time.Hour)) // a clock that is set back
	s.redeem(early).says(http.StatusBadRequest, `"expired_token"`)
	s.grant("codalab_worker_client", url.Values{"grant_type": {codalab.DeviceGrant}, "device_code": {s.begin().DeviceCode}}).says(http.StatusBadRequest, `"expired_token"`)

	s.ahead.Store(0)
	guesser := s.browser()
	for range 51 {
		if p, _ := guesser.ask("BBBB-BBBB"); p.status == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("short codes can be guessed without an end")
}

// TestOnlyLinkedPeopleAreUsers lists who becomes which user under which flags.
func TestOnlyLinkedPeopleAreUsers(t *testing.T) {
	t.Parallel()
	claim := func(o *sso.Options) { o.UsernameClaim = "preferred_username" }
	create := func(o *sso.Options) {
		claim(o)
		o.Create = func() (int64, int64, int64) { return 7, 8, 9 }
	}
	for name, test := range map[string]struct {
		change func(*sso.Options)
		users  map[string]string // by subject; empty for nobody
	}{
		"by default": {func(*sso.Options) {}, map[string]string{"s-claim": "", "s-bob": "", "s-new": "", "s-root": "", "s-two": "", "s-robot": "", "s-text": "alice"}},
		"by name":    {claim, map[string]string{"s-bob": "bob", "s-root": "", "s-new": "", "s-odd": "", "s-robot": ""}},
		"with new":   {create, map[string]string{"s-bob": "", "s-new": "newcomer", "s-odd": "", "s-root": "", "s-claim": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSSOSite(t, false, test.change)
			s.addUser("robot")
			s.setEmail("robot", "robot@lab.example")
			must(t, s.store.SetScopes(t.Context(), "0x"+strings.Repeat("r", 32), []store.Scope{{}}))
			for subject, user := range test.users {
				codes := s.begin()
				last := s.browser().signIn(codes, subject)
				if user != "" {
					s.signedIn(codes, user)
					continue
				}
				if last.status != http.StatusForbidden || !strings.Contains(last.body, "--oidc-subject "+subject) {
					t.Errorf("%s: %d %s", subject, last.status, last.body)
				}
				s.redeem(codes).says(http.StatusBadRequest, `"authorization_pending"`)
			}
			if u, err := s.store.User(t.Context(), "newcomer"); name == "with new" && (err != nil || u.DiskQuota != 8 || u.Password != "") {
				t.Errorf("the new user is %+v, %v", u, err)
			}
			s.grant("codalab_cli_client", url.Values{"grant_type": {"password"}, "username": {"newcomer"}, "password": {""}}).is(http.StatusUnauthorized)
		})
	}
}

func TestOperatorLinksAndUnlinksAPerson(t *testing.T) {
	t.Parallel()
	s := newSSOSite(t, false)
	must(t, s.store.Link(t.Context(), store.Identity{Issuer: s.provider.Issuer, Subject: "s-bob", UserID: store.RootID}))
	codes := s.begin()
	s.browser().signIn(codes, "s-bob")
	s.signedIn(codes, "root")
	if n, err := s.store.Unlink(t.Context(), store.RootID); n != 1 || err != nil {
		t.Error(n, err)
	}
	codes = s.begin()
	if p := s.browser().signIn(codes, "s-bob"); p.status != http.StatusForbidden {
		t.Errorf("%d %s", p.status, p.body)
	}
}

// The server begins without its provider, takes its new keys, and says so while it does not answer.
func TestProviderMayBeAwayAndChangeItsKeys(t *testing.T) {
	t.Parallel()
	s := newSSOSite(t, false)
	s.provider.Stop()
	away := func(b browser, codes codalab.DeviceAnswer) {
		t.Helper()
		_, mark := b.ask(codes.UserCode)
		p := b.open(http.MethodPost, s.web.URL+"/rest/sso", url.Values{"mark": {mark}, "code": {codes.UserCode}, "answer": {"allow"}})
		if p.status != http.StatusServiceUnavailable || !strings.Contains(p.body, "does not answer. Try again later") {
			t.Errorf("%d %s", p.status, p.body)
		}
	}
	codes := s.begin()
	away(s.browser(), codes)
	s.provider.Start()
	s.browser().signIn(codes, "s-alice")
	s.signedIn(codes, "alice")

	s.provider.Stop()
	s.provider.Start() // with other keys
	codes = s.begin()
	s.browser().signIn(codes, "s-alice")
	s.signedIn(codes, "alice")

	codes, b := s.begin(), s.browser()
	back := b.logIn(b.allow(codes), "s-alice")
	s.provider.Stop()
	if p := b.open(http.MethodGet, back, nil); p.status != http.StatusBadGateway || !strings.Contains(p.body, " failed; ") {
		t.Errorf("%d %s", p.status, p.body)
	}
}

func TestServerWithoutAProviderHasNoSuchSignIn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, path := range []string{"/sso", "/sso/callback", "/oauth2/device_authorization"} {
		s.call("", http.MethodGet, path, nil).is(http.StatusNotFound)
	}
	s.grant("codalab_cli_client", url.Values{"grant_type": {codalab.DeviceGrant}, "device_code": {"x"}}).says(http.StatusBadRequest, `"unsupported_grant_type"`)
}
