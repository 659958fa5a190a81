package contents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

const (
	dialTimeout   = 20 * time.Second
	answerTimeout = time.Minute
	maxRedirects  = 10
)

// FetchPrivate names the places of the site's own network from which users may upload by URL. The
// zero value allows public addresses only.
type FetchPrivate struct {
	Prefixes []netip.Prefix
	Hosts    []string // names or addresses as they are in URLs
}

// ParseFetchPrivate reads places, each of which is a prefix such as 10.1.0.0/16 or a host.
func ParseFetchPrivate(places []string) (FetchPrivate, error) {
	var f FetchPrivate
	for _, place := range places {
		if strings.Contains(place, "/") {
			prefix, err := netip.ParsePrefix(place)
			if err != nil {
				return f, fmt.Errorf("parse network %s: want one such as 10.1.0.0/16", place)
			}
			f.Prefixes = append(f.Prefixes, prefix.Masked())
			continue
		}
		if place == "" || strings.ContainsAny(place, " \t:") && net.ParseIP(place) == nil {
			return f, fmt.Errorf("parse host %q: want a name or an address, without a port", place)
		}
		f.Hosts = append(f.Hosts, strings.ToLower(place))
	}
	return f, nil
}

// errPrivate means an address that users may not make the server connect to.
var errPrivate = errors.New("the server does not fetch from this address, which is not a public one")

// special are the networks in the address space of the Internet that are not public (the registries
// of special-purpose addresses of IANA).
func special() []string {
	return []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	}
}

// public reports whether an address is one of the Internet and none of this machine's.
func public(ip netip.Addr, own []net.Addr) bool {
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.Zone() != "" {
		return false
	}
	if ip.Is6() && !netip.MustParsePrefix("2000::/3").Contains(ip) {
		return false // also addresses that contain others
	}
	for _, network := range special() {
		if netip.MustParsePrefix(network).Contains(ip) {
			return false
		}
	}
	for _, a := range own {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Unmap() == ip {
			return false
		}
	}
	return true
}

// allows checks the address to which a connection is really made, after the resolution of names.
func (f FetchPrivate) allows(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errPrivate, address)
	}
	ip := at.Addr().Unmap()
	for _, prefix := range f.Prefixes {
		if prefix.Contains(ip) {
			return nil
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list own addresses: %w", err)
	}
	if !public(ip, own) {
		return fmt.Errorf("%w: %s", errPrivate, ip)
	}
	return nil
}

// dial connects to a host that FetchPrivate names, or to an address that it allows.
func (f FetchPrivate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	if !slices.Contains(f.Hosts, strings.ToLower(host)) {
		dialer.Control = func(_, to string, _ syscall.RawConn) error { return f.allows(to) }
	}
	return dialer.DialContext(ctx, network, address)
}

// newClient returns the HTTP client for uploads by URL. It uses no proxy, and no connection twice.
func newClient(f FetchPrivate) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: f.dial, DisableCompression: true, DisableKeepAlives: true,
			TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: answerTimeout, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirections", maxRedirects)
			}
			return checkScheme(r.URL)
		},
	}
}

func checkScheme(u *url.URL) error {
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return badContents("only http and https URLs can be fetched")
	}
	return nil
}

// urlName is the name of a file that is fetched from a URL, by which the server knows its packing
// (codalab/lib/upload_manager.py: _interpret_source).
func urlName(u *url.URL) string { return path.Base(path.Clean("/" + u.Path)) }

// parseURL reads the URL of an upload.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, badContents("the URL cannot be read")
	}
	return u, checkScheme(u)
}

// fetch opens the contents of a URL, as they come, without decoding them. The
// caller closes the stream, which ends with an error if no 64 KiB come within the Fetcher's timeout.
func (s *Fetcher) fetch(ctx context.Context, u *url.URL) (stream io.ReadCloser, name string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()
		return nil, "", badContents("the URL cannot be read")
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "cl-server")
	answer, err := s.client.Do(r) //nolint:bodyclose // fetchedBody closes it
	if err != nil {
		cancel()
		return nil, "", fetchFailed(err)
	}
	body := &fetchedBody{ReadCloser: answer.Body, cancel: cancel, every: s.timeout, timer: time.AfterFunc(s.timeout, cancel)}
	if answer.StatusCode != http.StatusOK {
		return nil, "", errors.Join(badContents("the URL's server answers "+termtext.OneLine(answer.Status)), body.Close())
	}
	return body, urlName(u), nil
}

// fetchFailed returns an error that tells the user the reason for which a URL could not be fetched.
func fetchFailed(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // the rest is the URL, which may have a password
	}
	return badContents("the URL cannot be fetched: " + termtext.OneLine(err.Error()))
}

// fetchedBody is the body of an answer, which must come in time.
type fetchedBody struct {
	io.ReadCloser
	cancel func()
	timer  *time.Timer
	every  time.Duration
	step   int
}

// Read reads on, and fails if the body comes too slowly.
func (b *fetchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.step += n; b.step >= rest.PaceStep {
		b.step = 0
		b.timer.Reset(b.every)
	}
	return n, err
}

// Close ends the transfer.
func (b *fetchedBody) Close() error {
	b.timer.Stop()
	b.cancel()
	return b.ReadCloser.Close()
}
