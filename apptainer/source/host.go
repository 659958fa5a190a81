package source

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/cl-slurm/cl-slurm/internal/outbound"
)

// Host describes the access to a registry.
type Host struct {
	// Mirrors are tried in this order before the registry itself, for the same repositories:
	// "mirror.site:5000", or "mirror.site/hub" if the repositories are below a path. A prefix
	// http:// means plain HTTP. After a failure the next one is tried.
	Mirrors []string
	// PlainHTTP allows plain HTTP, with which anybody on the network path can read logins and
	// change the image of a tag.
	PlainHTTP bool
}

// Check refuses mirrors with invalid addresses.
func (h Host) Check() error {
	for _, m := range h.Mirrors {
		if _, err := parseMirror(m); err != nil {
			return err
		}
	}
	return nil
}

// mirror is the address of a mirror's repositories.
type mirror struct {
	host, prefix string
	plain        bool
}

func parseMirror(s string) (mirror, error) {
	address := s
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	if strings.Contains(address, "@") {
		return mirror{}, errors.New("a mirror's address has a login in it, which belongs among the logins")
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
		return mirror{}, fmt.Errorf("%q is not a mirror such as %q", s, "mirror.site:5000/hub")
	}
	return mirror{host: u.Host, prefix: strings.Trim(u.Path, "/"), plain: u.Scheme == "http"}, nil
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback() || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// transport returns the transport for requests to one registry, including redirections.
// closeConnections closes its idle connections.
func (src Source) transport(host string) (_ http.RoundTripper, closeConnections func(), err error) {
	base := src.Transport
	if base == nil {
		base = remote.DefaultTransport
	}
	t, ok := base.(*http.Transport)
	if !ok {
		return base, func() {}, nil
	}
	t = t.Clone()
	if t.ResponseHeaderTimeout == 0 {
		t.ResponseHeaderTimeout = src.stall()
	}
	for _, dir := range src.Certs {
		if err := addCerts(t, filepath.Join(dir, host)); err != nil {
			return nil, nil, plainError{text: fmt.Sprintf("the certificates for registry %s cannot be used: %v", host, err), cause: err, transient: true}
		}
	}
	if src.Transport != nil {
		return t, t.CloseIdleConnections, nil
	}
	guarded := src.places().Transport(t)
	return guarded, guarded.CloseIdleConnections, nil
}

// places returns the places that Source's own transport may reach.
func (src Source) places() outbound.Places {
	var hosts []string
	for host, h := range src.Hosts {
		hosts = append(hosts, portsOf(apiHost(host), h.PlainHTTP)...)
		for _, text := range h.Mirrors {
			if m, err := parseMirror(text); err == nil {
				hosts = append(hosts, portsOf(m.host, m.plain)...)
			}
		}
	}
	return src.Private.WithHosts(hosts...)
}

// portsOf returns a host with its port, or with those of its protocols.
func portsOf(host string, plain bool) []string {
	switch u := (url.URL{Host: host}); {
	case u.Port() != "":
		return []string{host}
	case plain:
		return []string{net.JoinHostPort(u.Hostname(), "80"), net.JoinHostPort(u.Hostname(), "443")}
	default:
		return []string{net.JoinHostPort(u.Hostname(), "443")}
	}
}

// CheckPlace returns an *ImageError if the registry of an image is neither public nor listed, as the name
// service knows it now. It is for programs that pull images themselves, by their own name service and
// wherever the registry redirects them.
func (src Source) CheckPlace(ctx context.Context, ref Reference) error {
	if ref.kind != InRegistry {
		return nil
	}
	for _, at := range portsOf(apiHost(ref.host), src.Hosts[ref.host].PlainHTTP) {
		if err := src.places().Lookup(ctx, cmp.Or(src.Resolver, net.DefaultResolver), &url.URL{Host: at}); err != nil {
			return WrapError(ctx, ref, (&endpoint{host: ref.host}).explain(err))
		}
	}
	return nil
}

// addCerts makes a transport trust and present the certificates in a directory (moby
// registry/registry.go: ReadCertsDirectory).
func addCerts(t *http.Transport, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config := t.TLSClientConfig
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch filepath.Ext(path) {
		case ".crt":
			err = trust(config, path)
		case ".cert":
			var pair tls.Certificate
			pair, err = tls.LoadX509KeyPair(path, strings.TrimSuffix(path, ".cert")+".key")
			config.Certificates = append(slices.Clip(config.Certificates), pair)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// trust adds the authorities in a file to those of the system.
func trust(config *tls.Config, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if config.RootCAs == nil {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
	}
	if !config.RootCAs.AppendCertsFromPEM(data) {
		return errors.New("there is no certificate in it")
	}
	return nil
}

// maxRedirects limits the redirections of a request, as in Go's client.
const maxRedirects = 10

var errRedirects = errors.New("it redirects in circles")

// checkRedirect limits redirections.
func checkRedirect(_ *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return errRedirects
	}
	return nil
}
