package source_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// dialing resolves the names of hosts to addresses here. No other host exists.
func dialing(hosts map[string]string) http.RoundTripper {
	return &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if to := hosts[host]; to != "" {
			address = to
		} else if !strings.HasPrefix(host, "127.") {
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
}

func status(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

func TestMirrorsAreTriedBeforeTheRegistry(t *testing.T) {
	t.Parallel()
	upstream, mirror := imagetest.Start(t), imagetest.Start(t)
	img := imagetest.Tiny(t, "x")
	ref := imagetest.Reference(t, upstream.Push(t, "library/x:1", img))
	mirror.Push(t, "library/x:1", img)
	mirror.Push(t, "below/hub/library/x:1", img)
	down := imagetest.Start(t)
	down.Intercept = status(http.StatusBadGateway)
	locked := imagetest.Start(t)
	locked.Intercept = status(http.StatusUnauthorized)
	without := imagetest.Start(t)
	broken := imagetest.Start(t) // it has the manifest and no layers
	broken.Push(t, "library/x:1", img)
	broken.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/blobs/") && status(http.StatusServiceUnavailable)(w, r)
	}
	for name, test := range map[string]struct {
		mirrors  []string
		upstream bool // it is asked, too
	}{
		"mirror":            {[]string{mirror.Host}, false},
		"below a path":      {[]string{"http://" + mirror.Host + "/below/hub/"}, false},
		"second":            {[]string{without.Host, mirror.Host}, false},
		"does not have it":  {[]string{without.Host}, true},
		"down":              {[]string{down.Host}, true},
		"locked":            {[]string{locked.Host}, true},
		"cannot be reached": {[]string{"127.0.0.1:1", "no.such.site"}, true},
		"has no layers":     {[]string{broken.Host}, true},
	} {
		asked := imagetest.Start(t)
		seen := false
		asked.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			seen = seen || strings.HasPrefix(r.URL.Path, "/v2/library/")
			httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream.Host}).ServeHTTP(w, r)
			return true
		}
		r := imagetest.Source()
		r.Transport = dialing(map[string]string{"hub.site": asked.Host})
		r.Hosts = map[string]source.Host{"hub.site": {Mirrors: test.mirrors, PlainHTTP: true}}
		got, err := r.Resolve(t.Context(), imagetest.Reference(t, strings.Replace(ref.String(), upstream.Host, "hub.site", 1)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		layers, err := source.Layers(t.Context(), r, got)
		if err == nil {
			_, err = source.ReadBlob(t.Context(), r, got, layers[0], 0)
		}
		if want, _ := img.Digest(); err != nil || got.Digest != want.String() || seen != test.upstream {
			t.Errorf("%s: %+v, %v; the registry itself was asked: %v", name, got, err, seen)
		}
	}
}

func TestMirrorsOfDockerHubStandForImagesWithoutAHost(t *testing.T) {
	t.Parallel()
	mirror := imagetest.Start(t)
	mirror.Push(t, "library/debian:12", imagetest.Tiny(t, "x"))
	r := imagetest.Source()
	r.Transport = dialing(nil)
	r.Known, r.Resolver = []string{"server.site"}, resolverOf(t, "server.site")
	r.Hosts = map[string]source.Host{"docker.io": {Mirrors: []string{mirror.Host}}}
	if got, err := r.Resolve(t.Context(), imagetest.Reference(t, "debian:12")); err != nil || !strings.HasPrefix(got.PinnedReference(), "docker.io/library/debian@sha256:") {
		t.Errorf("resolved to %+v, %v", got, err)
	}
	_, err := r.Resolve(t.Context(), imagetest.Reference(t, "debian:13"))
	imagetest.WantError(t, err, false, "registry docker.io cannot be reached: ")
	imagetest.WantError(t, err, false, "(its mirror "+mirror.Host+": not found in the registry)")
}

func TestMirrorInTroubleIsTriedOnce(t *testing.T) {
	t.Parallel()
	upstream, mirror := imagetest.Start(t), imagetest.Start(t)
	name := upstream.Push(t, "x", imagetest.Tiny(t, "x"))
	mirror.Intercept = status(http.StatusBadGateway)
	r := imagetest.Source()
	r.Hosts = map[string]source.Host{upstream.Host: {Mirrors: []string{mirror.Host}}}
	img := imagetest.Resolve(t, name)
	if _, err := source.Layers(t.Context(), r, img); err != nil { // a manifest and a configuration
		t.Fatal(err)
	}
	for asked := range len(mirror.Requests) {
		if request := <-mirror.Requests; asked > 0 {
			t.Errorf("the mirror was asked again: %s", request)
		}
	}
}

func TestLoginOfARegistryIsNotShownToItsMirror(t *testing.T) {
	t.Parallel()
	mirror, upstream := imagetest.Start(t), imagetest.Start(t)
	name := upstream.Push(t, "private/x", imagetest.Tiny(t, "x"))
	g := &gate{}
	g.guard(upstream)
	mirror.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("the mirror was shown %s", r.Header.Get("Authorization"))
		}
		return false
	}
	r := as(t, upstream.Host, "alice", "a-s3cret")
	r.Hosts = map[string]source.Host{upstream.Host: {Mirrors: []string{mirror.Host}}}
	if img, err := r.Resolve(t.Context(), imagetest.Reference(t, name)); err != nil || !img.Private {
		t.Errorf("resolved to %+v, %v", img, err)
	}
}

func TestPlainHTTPIsUsedOnlyWhereItIsAllowed(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	reg.Push(t, "x", imagetest.Tiny(t, "x"))
	for _, host := range []string{"plain.site", "10.1.2.3"} { // ggcr would speak plain HTTP to the second
		r := imagetest.Source()
		r.Transport = dialing(map[string]string{host: reg.Host})
		_, err := r.Resolve(t.Context(), imagetest.Reference(t, host+"/x"))
		imagetest.WantError(t, err, false, "registry "+host+" speaks plain HTTP, which the site has not allowed for it")
		r.Hosts = map[string]source.Host{host: {PlainHTTP: true}}
		if _, err := r.Resolve(t.Context(), imagetest.Reference(t, host+"/x")); err != nil {
			t.Error(err)
		}
	}
	for _, host := range []string{"127.77.1.2", "registry.localhost"} { // ggcr would not try it at the first
		r := imagetest.Source()
		r.Transport = dialing(map[string]string{host: reg.Host})
		if _, err := r.Resolve(t.Context(), imagetest.Reference(t, host+"/x")); err != nil {
			t.Errorf("on a loopback address: %v", err)
		}
	}
}

// clientPair writes a certificate and its key for a client, and returns the
// certificate.
func clientPair(tb testing.TB, dir string) *x509.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bridge"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(tb, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(tb, err)
	for name, block := range map[string]*pem.Block{"client.cert": {Type: "CERTIFICATE", Bytes: der}, "client.key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		must(tb, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	cert, err := x509.ParseCertificate(der)
	must(tb, err)
	return cert
}

func TestCertificatesOfARegistryAreReadFromItsDirectory(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	reg.Push(t, "x", imagetest.Tiny(t, "x"))
	certs := t.TempDir()
	dir := filepath.Join(certs, "example.com:5000")
	must(t, os.Mkdir(dir, 0o700))
	client := clientPair(t, dir)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 || !r.TLS.PeerCertificates[0].Equal(client) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: reg.Host}).ServeHTTP(w, r)
	}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	r := imagetest.Source()
	r.Transport = dialing(map[string]string{"example.com": strings.TrimPrefix(srv.URL, "https://"), "other.com": strings.TrimPrefix(srv.URL, "https://")})
	r.Certs = []string{filepath.Join(certs, "none"), certs}
	_, err := r.Resolve(t.Context(), imagetest.Reference(t, "example.com:5000/x"))
	imagetest.WantError(t, err, false, "registry example.com:5000 cannot be trusted: its certificate is signed by an authority that this host does not know")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), authority, 0o600))
	if _, err = r.Resolve(t.Context(), imagetest.Reference(t, "example.com:5000/x")); err != nil {
		t.Error(err)
	}
	_, err = r.Resolve(t.Context(), imagetest.Reference(t, "example.com/x"))
	imagetest.WantError(t, err, false, "cannot be trusted")
	must(t, os.Symlink(dir, filepath.Join(certs, "other.com")))
	_, err = r.Resolve(t.Context(), imagetest.Reference(t, "other.com/x"))
	imagetest.WantError(t, err, false, "registry other.com cannot be trusted: x509: certificate is valid for example.com")
	must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("nothing"), 0o600))
	_, err = r.Resolve(t.Context(), imagetest.Reference(t, "example.com:5000/x"))
	imagetest.WantError(t, err, true, "the certificates for registry example.com:5000 cannot be used: "+dir+"/ca.crt: there is no certificate in it")
}

func TestWrongMirrorsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, m := range []string{"", "ftp://mirror.site", "https://user:secret@mirror.site", "https://mirror.site?x=1", "mirror site"} {
		if err := (source.Host{Mirrors: []string{m}}).Check(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", m, err)
		}
	}
	if err := (source.Host{Mirrors: []string{"mirror.site:5000", "http://[::1]:5000/hub/", "https://mirror.site"}}).Check(); err != nil {
		t.Error(err)
	}
}

func TestRegistriesAreReachedThroughAProxy(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	reg.Push(t, "x", imagetest.Tiny(t, "x"))
	var through atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect && r.URL.Host == "behind.site" { // an absolute address, as for proxies
			through.Add(1)
			httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: reg.Host}).ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	must(t, err)
	r := imagetest.Source()
	r.Transport = &http.Transport{Proxy: http.ProxyURL(address)}
	r.Hosts = map[string]source.Host{"behind.site": {PlainHTTP: true}}
	if _, err := r.Resolve(t.Context(), imagetest.Reference(t, "behind.site/x")); err != nil || through.Load() == 0 {
		t.Errorf("%v, %d requests through the proxy", err, through.Load())
	}
}
