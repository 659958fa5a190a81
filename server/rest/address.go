package rest

import (
	"net"
	"net/http"
	"strings"
)

// ClientAddress returns the address of a request's client. Behind a proxy it is the
// last element of X-Forwarded-For, which the proxy itself has added.
func ClientAddress(r *http.Request, behindProxy bool) string {
	if forwarded := r.Header.Values("X-Forwarded-For"); behindProxy && len(forwarded) > 0 {
		last := forwarded[len(forwarded)-1]
		return strings.Clone(strings.TrimSpace(last[strings.LastIndex(last, ",")+1:])) // whoever keeps it keeps no long header
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// Encrypted reports whether a request's client has sent it by TLS. A proxy in front of the server says so in the last
// element of X-Forwarded-Proto.
func Encrypted(r *http.Request, behindProxy bool) bool {
	if forwarded := r.Header.Values("X-Forwarded-Proto"); behindProxy && len(forwarded) > 0 {
		last := forwarded[len(forwarded)-1]
		return strings.EqualFold(strings.TrimSpace(last[strings.LastIndex(last, ",")+1:]), "https")
	}
	return r.TLS != nil
}
