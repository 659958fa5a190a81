package server_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/sso"
)

// TestProviderWhoseDocumentIsWrongIsNotUsed: people learn on the page that the provider is at fault, and operators the
// reason in the log. The next sign-in asks the provider again.
func TestProviderWhoseDocumentIsWrongIsNotUsed(t *testing.T) {
	t.Parallel()
	var status int
	var text string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(provider.Close)
	s := &ssoSite{log: &testenv.Output{}}
	s.web = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }))
	t.Cleanup(s.web.Close)
	s.site = newSite(t, func(c *server.Config) {
		c.Log = slog.New(slog.NewTextHandler(s.log, nil))
		c.SSO = sso.Options{Issuer: provider.URL, ClientID: "codalab", URL: s.web.URL}
	})
	for _, test := range []struct {
		status    int
		text, why string
	}{
		{http.StatusInternalServerError, "trouble", "500 Internal Server Error"},
		{http.StatusOK, "<html>", "failed to decode"},
		{http.StatusOK, `{"issuer": "https://elsewhere.example"}`, "issuer"},
	} {
		status, text = test.status, test.text
		codes, b := s.begin(), s.browser()
		_, mark := b.ask(codes.UserCode)
		p := b.Open(http.MethodPost, s.web.URL+"/rest/sso", url.Values{"mark": {mark}, "code": {codes.UserCode}, "answer": {"allow"}})
		if p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Body, "gives no usable answer; the server&#39;s log has the reason. Try again later") {
			t.Errorf("%d %s", p.Status, p.Body)
		}
		if log := s.log.String(); !strings.Contains(log, "the provider of sign-ins cannot be used") || !strings.Contains(log, test.why) {
			t.Errorf("want %q in the log: %s", test.why, log)
		}
	}
}
