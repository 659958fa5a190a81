package rest

import (
	"net/http"
	"net/url"
	"strings"
)

// The names of the cookie by which a browser is signed in. Its value is an access token. A browser takes a cookie with the prefix
// __Host- from this host alone, and by TLS (RFC 6265bis, 4.1.3.2), so that no other host of the domain can sign it in.
const (
	SessionCookie          = "cl_session"
	EncryptedSessionCookie = "__Host-" + SessionCookie
)

// SessionCookieName is the name of the cookie for a request; encrypted means that it has come by TLS.
func SessionCookieName(encrypted bool) string {
	if encrypted {
		return EncryptedSessionCookie
	}
	return SessionCookie
}

// CheckSite refuses a request that changes something and that another site's page has made a browser send. A request without
// a cookie needs no check.
func CheckSite(r *http.Request) error {
	if http.NewCrossOriginProtection().Check(r) != nil {
		return Refuse(http.StatusForbidden, "Another site has sent this request.")
	}
	return nil
}

// IsVisit reports whether a person may have made a request by going to a page, and not a part of one, as a picture in a text
// that somebody else has written. Old browsers do not tell, and programs neither.
func IsVisit(r *http.Request) bool {
	to := r.Header.Get("Sec-Fetch-Dest")
	return to == "" || to == "document"
}

// CheckVisit refuses a request that is no visit.
func CheckVisit(r *http.Request) error {
	if !IsVisit(r) {
		return Refuse(http.StatusForbidden, "A part of a page has sent this request.")
	}
	return nil
}

// HasCookie reports whether a cookie may be the proof of a request's user.
func HasCookie(r *http.Request) bool {
	for _, encrypted := range []bool{true, false} {
		if c, err := r.Cookie(SessionCookieName(encrypted)); err == nil && c.Value != "" {
			return r.Header.Get("Authorization") == ""
		}
	}
	return false
}

// LocalPath returns an address of this server, as a path with its query; "/" for an address of another one.
func LocalPath(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(address, "//") || strings.ContainsAny(address, "\\\r\n\t") {
		return "/"
	}
	return address
}

// Go sends a browser to an address of this server.
func Go(w http.ResponseWriter, r *http.Request, address string) {
	http.Redirect(w, r, LocalPath(address), http.StatusSeeOther)
}
