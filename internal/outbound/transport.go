package outbound

import (
	"net/http"
	"net/url"
)

// Transport makes requests to places.
type Transport struct {
	places          Places
	proxy           func(*http.Request) (*url.URL, error)
	direct, proxied *http.Transport
}

// Transport returns a transport like base, which it does not change. Requests without a proxy connect as
// DialContext does. For others base.Proxy names the proxy, to which the connection goes, and CheckName
// checks the host.
func (p Places) Transport(base *http.Transport) *Transport {
	t := &Transport{places: p, proxy: base.Proxy, direct: base.Clone(), proxied: base.Clone()}
	t.direct.Proxy = nil
	t.direct.DialContext = p.DialContext
	return t
}

// RoundTrip makes a request.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.proxy == nil {
		return t.direct.RoundTrip(r) //nolint:wrapcheck // as the transport
	}
	switch proxy, err := t.proxy(r); {
	case err != nil:
		return nil, err
	case proxy == nil:
		return t.direct.RoundTrip(r) //nolint:wrapcheck // as the transport
	}
	if err := t.places.CheckName(r.URL); err != nil {
		return nil, err
	}
	return t.proxied.RoundTrip(r) //nolint:wrapcheck // as the transport
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
