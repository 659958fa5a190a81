package testenv

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// Browser is a person's browser. It keeps cookies, and follows no redirection by itself.
type Browser struct {
	tb   testing.TB
	http *http.Client
}

// NewBrowser returns a browser without cookies. It trusts the servers that a client trusts.
func NewBrowser(tb testing.TB, trusting *http.Client) *Browser {
	tb.Helper()
	jar, err := cookiejar.New(nil)
	Must(tb, err)
	c := *trusting
	c.Jar, c.CheckRedirect = jar, func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Browser{tb, &c}
}

// Page is the answer to a browser.
type Page struct {
	Status int
	Header http.Header
	Body   string

	at *url.URL
}

// Open asks for a page, with a form unless form is nil.
func (b *Browser) Open(method, address string, form url.Values) Page {
	b.tb.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, address, strings.NewReader(form.Encode()))
	Must(b.tb, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.http.Do(r)
	Must(b.tb, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	Must(b.tb, err)
	return Page{resp.StatusCode, resp.Header, string(body), r.URL}
}

// Next returns the address of a redirection; empty if it is none.
func (p Page) Next(tb testing.TB) string {
	tb.Helper()
	to := p.Header.Get("Location")
	if to == "" {
		return ""
	}
	u, err := p.at.Parse(to)
	Must(tb, err)
	return u.String()
}

// Part returns what the group of a pattern matches, which must be there.
func (p Page) Part(tb testing.TB, pattern string) string {
	tb.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(p.Body)
	if m == nil {
		tb.Fatalf("no %s in %d %s", pattern, p.Status, p.Body)
	}
	return html.UnescapeString(m[1])
}

// LogIn logs in at the provider's page at an address and consents there, and returns the address below site to which the
// provider sends the browser. An empty subject refuses.
func (b *Browser) LogIn(p *OIDCProvider, address, subject, site string) string {
	b.tb.Helper()
	for range 10 {
		at := b.Open(http.MethodGet, address, nil)
		for at.Next(b.tb) == "" {
			if subject == "" {
				at = b.Open(http.MethodGet, p.Issuer+at.Part(b.tb, `href="(?:`+regexp.QuoteMeta(p.Issuer)+`)?(/[^"]*abort)"`), nil)
				continue
			}
			form := url.Values{"prompt": {at.Part(b.tb, `name="prompt" value="([^"]+)"`)}, "login": {subject}, "password": {"any"}}
			at = b.Open(http.MethodPost, at.Part(b.tb, `action="([^"]+)"`), form)
		}
		if address = at.Next(b.tb); strings.HasPrefix(address, site) {
			return address
		}
	}
	b.tb.Fatalf("the provider does not end: %s", address)
	return ""
}
