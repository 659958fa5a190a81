package rest

import (
	"net/http"
	"net/url"
	"strings"
)

// SessionCookie is the name of the cookie by which a browser is signed in. Its value is an access token.
const SessionCookie = "cl_session"

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

// HasCookie reports whether the cookie is the proof of a request's user.
func HasCookie(r *http.Request) bool {
	c, err := r.Cookie(SessionCookie)
	return err == nil && c.Value != "" && r.Header.Get("Authorization") == ""
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
