package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
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
	log      *testenv.Output
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
	s := &ssoSite{log: &testenv.Output{}}
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

// browser is a person's browser at the site.
type browser struct {
	*ssoSite
	*testenv.Browser
}

func (s *ssoSite) browser() browser {
	s.t.Helper()
	return browser{s, testenv.NewBrowser(s.t, s.web.Client())}
}

// ask types a code into the server's page, and returns the question and its mark.
func (b browser) ask(code string) (question testenv.Page, mark string) {
	b.t.Helper()
	mark = b.Open(http.MethodGet, b.web.URL+"/rest/sso", nil).Part(b.t, `name="mark" value="([^"]+)"`)
	return b.Open(http.MethodPost, b.web.URL+"/rest/sso", url.Values{"mark": {mark}, "code": {code}}), mark
}

// allow goes on to the provider, and returns the address there.
func (b browser) allow(codes codalab.DeviceAnswer) string {
	b.t.Helper()
	question, mark := b.ask(codes.UserCode)
	if question.Status != http.StatusOK || !strings.Contains(question.Body, codes.UserCode) || !strings.Contains(question.Body, "192.0.2.1") {
		b.t.Fatalf("the page does not ask: %d %s", question.Status, question.Body)
	}
	sent := b.Open(http.MethodPost, b.web.URL+"/rest/sso", url.Values{"mark": {mark}, "code": {codes.UserCode}, "answer": {"allow"}})
	if sent.Status != http.StatusSeeOther || !strings.HasPrefix(sent.Next(b.t), b.provider.Issuer) {
		b.t.Fatalf("the browser is not sent to the provider: %d %s", sent.Status, sent.Body)
	}
	return sent.Next(b.t)
}

// logIn logs in at the provider and consents there, and returns the address to which the provider sends the browser.
func (b browser) logIn(address, subject string) string {
	b.t.Helper()
	return b.LogIn(b.provider, address, subject, b.web.URL)
}

// signIn signs a person in, and returns the last page.
func (b browser) signIn(codes codalab.DeviceAnswer, subject string) testenv.Page {
	b.t.Helper()
	return b.Open(http.MethodGet, b.logIn(b.allow(codes), subject), nil)
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
			if last.Status != http.StatusOK || !strings.Contains(last.Body, "cl is signed in as alice.") {
				t.Fatalf("%d %s", last.Status, last.Body)
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
	p := b.Open(http.MethodGet, s.web.URL+"/rest/sso", nil)
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'", "Cache-Control": "no-store",
		"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
	} {
		if got := p.Header.Get(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	cookie := p.Header.Get("Set-Cookie")
	for _, want := range []string{"__Host-cl-sso=", "; Path=/", "; HttpOnly", "; Secure", "; SameSite=Lax"} {
		if !strings.Contains(cookie, want) || strings.Contains(cookie, "Domain") {
			t.Errorf("the cookie %s lacks %s", cookie, want)
		}
	}
	codes := s.begin()
	for name, form := range map[string]url.Values{
		"no mark":        {"code": {codes.UserCode}, "answer": {"allow"}},
		"another's mark": {"code": {codes.UserCode}, "answer": {"allow"}, "mark": {s.browser().Open(http.MethodGet, s.web.URL+"/rest/sso", nil).Part(t, `name="mark" value="([^"]+)"`)}},
	} {
		if p := b.Open(http.MethodPost, s.web.URL+"/rest/sso", form); p.Status != http.StatusForbidden {
			t.Errorf("%s: %d", name, p.Status)
		}
	}
	if p := b.Open(http.MethodGet, s.web.URL+"/rest/sso?code="+codes.UserCode, nil); strings.Contains(p.Body, codes.UserCode) {
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
	for name, attack := range map[string]func(b browser, codes codalab.DeviceAnswer) testenv.Page{
		"wrong state": func(b browser, codes codalab.DeviceAnswer) testenv.Page {
			back := b.logIn(b.allow(codes), "s-alice")
			return b.Open(http.MethodGet, change(back, func(q url.Values) { q.Set("state", "x") }), nil)
		},
		"no state": func(b browser, codes codalab.DeviceAnswer) testenv.Page {
			back := b.logIn(b.allow(codes), "s-alice")
			return b.Open(http.MethodGet, change(back, func(q url.Values) { q.Del("state") }), nil)
		},
		"another nonce": func(b browser, codes codalab.DeviceAnswer) testenv.Page {
			to := change(b.allow(codes), func(q url.Values) { q.Set("nonce", "x") })
			return b.Open(http.MethodGet, b.logIn(to, "s-alice"), nil)
		},
		"without PKCE's proof": func(b browser, codes codalab.DeviceAnswer) testenv.Page {
			to := change(b.allow(codes), func(q url.Values) { q.Set("code_challenge", strings.Repeat("x", 43)) })
			return b.Open(http.MethodGet, b.logIn(to, "s-alice"), nil)
		},
		"another issuer": func(b browser, codes codalab.DeviceAnswer) testenv.Page {
			back := b.logIn(b.allow(codes), "s-alice")
			return b.Open(http.MethodGet, change(back, func(q url.Values) { q.Set("iss", "https://evil.example") }), nil)
		},
		"another browser": func(b browser, codes codalab.DeviceAnswer) testenv.Page {
			other := s.browser()
			other.Open(http.MethodGet, s.web.URL+"/rest/sso", nil) // it has a cookie of its own
			return other.Open(http.MethodGet, b.logIn(b.allow(codes), "s-alice"), nil)
		},
		"another's code": func(b browser, codes codalab.DeviceAnswer) testenv.Page {
			victim := s.browser()
			stolen, err := url.Parse(victim.logIn(victim.allow(s.begin()), "s-alice"))
			must(t, err)
			back := b.logIn(b.allow(codes), "s-new")
			return b.Open(http.MethodGet, change(back, func(q url.Values) { q.Set("code", stolen.Query().Get("code")) }), nil)
		},
		"an invented code": func(b browser, codes codalab.DeviceAnswer) testenv.Page {
			back := b.logIn(b.allow(codes), "s-alice")
			return b.Open(http.MethodGet, change(back, func(q url.Values) { q.Set("code", "x") }), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			codes := s.begin()
			if p := attack(s.browser(), codes); p.Status < 400 || !strings.Contains(p.Body, "Run cl login --sso again") {
				t.Errorf("%d %s", p.Status, p.Body)
			}
			s.redeem(codes).says(http.StatusBadRequest, `"authorization_pending"`)
		})
	}
	t.Run("replayed", func(t *testing.T) {
		codes, b := s.begin(), s.browser()
		back := b.logIn(b.allow(codes), "s-alice")
		if p := b.Open(http.MethodGet, back, nil); p.Status != http.StatusOK {
			t.Fatalf("%d %s", p.Status, p.Body)
		}
		if p := b.Open(http.MethodGet, back, nil); p.Status != http.StatusBadRequest {
			t.Errorf("a second time: %d %s", p.Status, p.Body)
		}
	})
}

func TestSignInThatIsRefusedOrTooLateGivesNoTokens(t *testing.T) {
	t.Parallel()
	s := newSSOSite(t, false)
	refused, b := s.begin(), s.browser()
	_, mark := b.ask(refused.UserCode)
	if p := b.Open(http.MethodPost, s.web.URL+"/rest/sso", url.Values{"mark": {mark}, "code": {refused.UserCode}, "answer": {"deny"}}); p.Status != http.StatusOK {
		t.Errorf("%d %s", p.Status, p.Body)
	}
	s.redeem(refused).says(http.StatusBadRequest, `"access_denied"`)

	atProvider := s.begin()
	if p := s.browser().signIn(atProvider, ""); p.Status != http.StatusOK || !strings.Contains(p.Body, "The program was not signed in.") {
		t.Errorf("%d %s", p.Status, p.Body)
	}
	s.redeem(atProvider).says(http.StatusBadRequest, `"access_denied"`)

	late, mine := s.begin(), s.browser()
	back := mine.logIn(mine.allow(late), "s-alice")
	s.ahead.Store(int64(11 * time.Minute))
	if p := mine.Open(http.MethodGet, back, nil); p.Status != http.StatusBadRequest {
		t.Errorf("%d %s", p.Status, p.Body)
	}
	s.redeem(late).says(http.StatusBadRequest, `"expired_token"`)
	if p, _ := s.browser().ask(late.UserCode); p.Status != http.StatusNotFound {
		t.Errorf("an old code: %d", p.Status)
	}
	s.ahead.Store(0)
	must(t, s.store.AddUser(t.Context(), userNamed("dave")))
	s.setEmail("dave", "new@lab.example")
	removed := s.begin()
	if p := s.browser().signIn(removed, "s-new"); !strings.Contains(p.Body, "cl is signed in as dave") {
		t.Errorf("%d %s", p.Status, p.Body)
	}
	s.removeUser("dave")
	s.redeem(removed).says(http.StatusUnauthorized, `"invalid_grant"`)

	early := s.begin()
	s.ahead.Store(-int64(time.Hour)) // a clock that is set back
	s.redeem(early).says(http.StatusBadRequest, `"expired_token"`)
	s.grant("codalab_worker_client", url.Values{"grant_type": {codalab.DeviceGrant}, "device_code": {s.begin().DeviceCode}}).says(http.StatusBadRequest, `"expired_token"`)

	s.ahead.Store(0)
	guesser := s.browser()
	for range 51 {
		if p, _ := guesser.ask("BBBB-BBBB"); p.Status == http.StatusTooManyRequests {
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
				if last.Status != http.StatusForbidden || !strings.Contains(last.Body, "--oidc-subject "+subject) {
					t.Errorf("%s: %d %s", subject, last.Status, last.Body)
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
	if p := s.browser().signIn(codes, "s-bob"); p.Status != http.StatusForbidden {
		t.Errorf("%d %s", p.Status, p.Body)
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
		p := b.Open(http.MethodPost, s.web.URL+"/rest/sso", url.Values{"mark": {mark}, "code": {codes.UserCode}, "answer": {"allow"}})
		if p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Body, "does not answer. Try again later") {
			t.Errorf("%d %s", p.Status, p.Body)
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
	if p := b.Open(http.MethodGet, back, nil); p.Status != http.StatusBadGateway || !strings.Contains(p.Body, " failed; ") {
		t.Errorf("%d %s", p.Status, p.Body)
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
