package contents

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/outbound"
)

// TestGitProxy has Go's HTTP client in place of git, which would not trust the certificate.
func TestGitProxy(t *testing.T) {
	t.Parallel()
	errFull := errors.New("full")
	text := strings.Repeat("x", 100_000)
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "" {
			t.Error("the proxy's password goes out")
		}
		_, _ = io.WriteString(w, text)
	})
	plain, encrypted := httptest.NewServer(serve), httptest.NewTLSServer(serve)
	defer plain.Close()
	defer encrypted.Close()
	for _, web := range []*httptest.Server{plain, encrypted} {
		for _, room := range []int64{1 << 20, 50_000} {
			left := room
			allow := outbound.Places{Hosts: []string{"127.0.0.1"}}
			proxy, err := newGitProxy(t.Context(), allow, func(n int64) error {
				if left -= n; left < 0 {
					return errFull
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			get := func(through string) (status int, body string, err error) {
				at, _ := url.Parse(through)
				transport := web.Client().Transport.(*http.Transport).Clone()
				transport.Proxy, transport.DisableKeepAlives = http.ProxyURL(at), true
				a, err := (&http.Client{Transport: transport}).Get(web.URL)
				if err != nil {
					return 0, "", err
				}
				defer func() { _ = a.Body.Close() }()
				all, err := io.ReadAll(a.Body)
				return a.StatusCode, string(all), err
			}
			if status, body, _ := get(strings.Replace(proxy.url, proxy.password, "guessed", 1)); status == http.StatusOK || body == text {
				t.Errorf("%s: served without the password: %d", web.URL, status)
			}
			_, body, err := get(proxy.url)
			failed := proxy.close()
			if room > int64(len(text)) {
				if body != text || err != nil || failed != nil || room-left < int64(len(text)) {
					t.Errorf("%s: %d bytes, %v, %v; %d are reserved", web.URL, len(body), err, failed, room-left)
				}
			} else if int64(len(body)) > room || err == nil || !errors.Is(failed, errFull) {
				t.Errorf("%s, beyond the quota: %d bytes, %v, %v", web.URL, len(body), err, failed)
			}
			if _, _, err := get(proxy.url); err == nil {
				t.Error("the closed proxy serves")
			}
		}
	}
}

// Another user of the server's machine may open connections to git's proxy, which would use up the server's descriptors.
func TestIdleConnectionsToGitsProxyAreFew(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") }))
	defer web.Close()
	proxy, err := newGitProxy(t.Context(), outbound.Places{Hosts: []string{"127.0.0.1"}}, func(int64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	through, err := url.Parse(proxy.url)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", through.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	a, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(through), DisableKeepAlives: true}}).Get(web.URL)
	if err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("git's request: %v, %v", a, err)
	}
	_ = a.Body.Close()
	if n := proxy.guard.Counts(); n.All > 16 || n.Spare > 1 {
		t.Errorf("the proxy has %+v", n)
	}
	if err := proxy.close(); err != nil {
		t.Error(err)
	}
}
