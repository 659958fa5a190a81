package server_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// browserReply is an answer to a browser.
type browserReply struct {
	status  int
	header  http.Header
	body    string
	cookies []*http.Cookie
}

// form sends a form as a browser does, from a page of the server itself unless header says other things. Without fields it
// gets a page.
func (s *site) form(path string, fields url.Values, header http.Header, cookies ...*http.Cookie) browserReply {
	s.t.Helper()
	method := http.MethodPost
	if fields == nil {
		method = http.MethodGet
	}
	r := httptest.NewRequest(method, path, strings.NewReader(fields.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for name, values := range header {
		r.Header[name] = values
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	resp := w.Result()
	must(s.t, resp.Body.Close())
	return browserReply{resp.StatusCode, resp.Header, w.Body.String(), resp.Cookies()}
}

// signInBrowser signs in by the form of CodaLab's own web page.
func (s *site) signInBrowser(user string) browserReply {
	s.t.Helper()
	return s.form("/rest/account/login", url.Values{"username": {user}, "password": {user}, "success_uri": {"/worksheets"}, "error_uri": {"/account/login"}}, nil)
}

// sessionCookie is the cookie that signs a browser in.
func sessionCookie(t *testing.T, resp browserReply) *http.Cookie {
	t.Helper()
	for _, c := range resp.cookies {
		if c.Name == rest.SessionCookie || c.Name == rest.EncryptedSessionCookie {
			return c
		}
	}
	t.Fatalf("%d sets the cookies %v", resp.status, resp.cookies)
	return nil
}

func TestBrowserSignsInByACookie(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	resp := s.signInBrowser("alice")
	cookie := sessionCookie(t, resp)
	if resp.status != http.StatusSeeOther || resp.header.Get("Location") != "/worksheets" || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Secure {
		t.Errorf("%d to %q with %+v", resp.status, resp.header.Get("Location"), cookie)
	}
	if resp := s.form("/rest/user", nil, nil, cookie); resp.status != http.StatusOK {
		t.Errorf("a request with the cookie: %d", resp.status)
	}
	// CodaLab's own cookie alone, which scripts can read, proves nothing.
	if resp := s.form("/rest/user", nil, nil, &http.Cookie{Name: "codalab_session", Value: cookie.Value}); resp.status != http.StatusUnauthorized {
		t.Errorf("a request with the other cookie: %d", resp.status)
	}
	sessions := s.get("alice", "/user/sessions").ok()
	if !strings.Contains(sessions.body, "codalab_web_client") {
		t.Errorf("the sessions are %s", sessions.body)
	}
	out := s.form("/rest/account/logout?redirect_uri=/home", nil, nil, cookie)
	if c := sessionCookie(t, out); c.MaxAge >= 0 || out.header.Get("Location") != "/home" {
		t.Errorf("%d to %q with %+v", out.status, out.header.Get("Location"), c)
	}
	if resp := s.form("/rest/user", nil, nil, cookie); resp.status != http.StatusUnauthorized {
		t.Errorf("a request with the cookie after its end: %d", resp.status)
	}
}

// By TLS, also to a proxy in front of the server, the cookie is one that no other host of the domain can set.
func TestEncryptedCookieIsOfThisHostAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.BehindProxy = true })
	encrypted := http.Header{"X-Forwarded-Proto": {"https"}}
	signIn := s.form("/signin", url.Values{"name": {"alice"}, "password": {"alice"}, "next": {"/runs"}}, encrypted)
	cookie := sessionCookie(t, signIn)
	if cookie.Name != rest.EncryptedSessionCookie || !cookie.Secure || cookie.Domain != "" || cookie.Path != "/" {
		t.Errorf("the cookie is %+v", cookie)
	}
	plain := &http.Cookie{Name: rest.SessionCookie, Value: cookie.Value}
	for name, test := range map[string]struct {
		header http.Header
		cookie *http.Cookie
		want   int
	}{
		"encrypted":                    {encrypted, cookie, http.StatusOK},
		"another host's":               {encrypted, plain, http.StatusUnauthorized},
		"not encrypted":                {nil, plain, http.StatusOK},
		"not encrypted, with a prefix": {nil, cookie, http.StatusUnauthorized},
	} {
		if got := s.form("/runs", nil, test.header, test.cookie); got.status != test.want {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	out := s.form("/signout", url.Values{}, encrypted, cookie)
	if c := sessionCookie(t, out); c.Name != cookie.Name || c.MaxAge >= 0 || !c.Secure {
		t.Errorf("signing out sets %+v", c)
	}
}

// A password that is changed ends the browser's session, as all others.
func TestCookieEndsWithItsUser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cookie := sessionCookie(t, s.signInBrowser("alice"))
	s.call("alice", http.MethodPost, "/user/password", map[string]string{"old_password": "alice", "new_password": "correct horse"}).ok()
	if resp := s.form("/rest/user", nil, nil, cookie); resp.status != http.StatusUnauthorized {
		t.Errorf("a request with the cookie: %d", resp.status)
	}
}

// CodaLab's web page offers to sign in when its mark is gone (CodalabApp.js: checkAuth).
func TestMarkEndsWithTheSession(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	signIn := s.signInBrowser("alice")
	mark := &http.Cookie{Name: rest.PageCookie, Value: "1"}
	unmarked := func(path string, header http.Header, cookies ...*http.Cookie) bool {
		t.Helper()
		set := s.form(path, nil, header, cookies...).cookies
		if len(set) > 1 || len(set) == 1 && (set[0].Name != rest.PageCookie || set[0].MaxAge >= 0 || set[0].Path != "/") {
			t.Errorf("%s sets %v", path, set)
		}
		return len(set) == 1
	}
	session, sheet := sessionCookie(t, signIn), s.home("alice")
	if unmarked("/rest/user", nil, session, mark) {
		t.Error("a browser that is signed in loses its mark")
	}
	s.share("alice", "worksheet", sheet, "public", store.PermissionRead)
	s.call("alice", http.MethodPost, "/user/password", map[string]string{"old_password": "alice", "new_password": "correct horse"}).ok()
	for _, path := range []string{"/rest/user", "/rest/interpret/worksheet/" + sheet} {
		if !unmarked(path, nil, session, mark) || !unmarked(path, nil, mark) {
			t.Errorf("%s leaves the mark", path)
		}
		if unmarked(path, nil, session) || unmarked(path, http.Header{"Authorization": {"Bearer x"}}, mark) {
			t.Errorf("%s takes a mark from a program", path)
		}
	}
	if unmarked("/rest/bundles/0x1/netcurl/80/", nil, session, mark) {
		t.Error("a run's own pages, on which the cookie may not count, take the mark")
	}
}

func TestWrongPasswordOfABrowserGoesBackToTheForm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 2 {
		resp := s.form("/rest/account/login", url.Values{"username": {"alice"}, "password": {"wrong"}, "success_uri": {"https://evil.example/"}, "error_uri": {"/account/login?a=1"}}, nil)
		if to := resp.header.Get("Location"); resp.status != http.StatusSeeOther || to != "/account/login?a=1&error=The+name+or+the+password+is+wrong.&next=%2F" || len(resp.cookies) > 0 {
			t.Errorf("%d to %q with %v", resp.status, to, resp.cookies)
		}
	}
}

// A browser sends the cookie with requests to which another site's page has led it: they change nothing.
func TestCookieIsNoProofForAnotherSitesRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cookie := sessionCookie(t, s.signInBrowser("alice"))
	for name, header := range map[string]http.Header{
		"another site":   {"Sec-Fetch-Site": {"cross-site"}},
		"another origin": {"Sec-Fetch-Site": nil, "Origin": {"https://evil.example"}},
		"a sibling":      {"Sec-Fetch-Site": {"same-site"}, "Origin": {"https://other.example.com"}},
	} {
		if resp := s.form("/rest/worksheets", url.Values{}, header, cookie); resp.status != http.StatusForbidden {
			t.Errorf("%s: %d", name, resp.status)
		}
		// Nor does it sign the user in to another account.
		if resp := s.form("/rest/account/login", url.Values{"username": {"bob"}, "password": {"bob"}}, header); resp.status != http.StatusForbidden || len(resp.cookies) > 0 {
			t.Errorf("%s signs in: %d %v", name, resp.status, resp.cookies)
		}
	}
	// A token in a header is sent by a program, or by a page that may read the server's answers.
	r := s.request("alice", http.MethodPost, "/worksheets", object("worksheets", map[string]string{"name": "w"}))
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	s.send(r).ok()
}

func TestCookieIsSecureBehindAProxyWithTLS(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.BehindProxy = true })
	resp := s.form("/rest/account/login", url.Values{"username": {"alice"}, "password": {"alice"}}, http.Header{"X-Forwarded-Proto": {"http, https"}})
	if !sessionCookie(t, resp).Secure {
		t.Errorf("%v", resp.cookies)
	}
}

func TestOnlyPathsOfTheServerAreLocal(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"/": "/", "/worksheets?a=b#c": "/worksheets?a=b#c", "": "/", "worksheets": "/", "//evil.example": "/", "https://evil.example/": "/", "/\\evil.example": "/",
		"javascript:alert(1)": "/", "/\t/evil.example": "/", "\\\\evil.example": "/", "/%2f/evil": "/%2f/evil", "http:/evil": "/", " //evil.example": "/",
	} {
		if got := rest.LocalPath(address); got != want {
			t.Errorf("%q becomes %q, not %q", address, got, want)
		}
	}
}
