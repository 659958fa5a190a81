package sso

import (
	_ "embed"
	"net/http"
)

//go:embed page.html
var pageHTML string

// page is what the page shows.
type page struct {
	// Ask is set to ask for a short code. Mark is the form's.
	Ask  bool
	Mark string
	// Code, Address, Minutes and Provider are of the sign-in about which the person is asked.
	Code, Address, Provider string
	Minutes                 int
	// Problem and Done are sentences; empty for none.
	Problem, Done string
}

// show writes the page. It has no script, and loads nothing; no other page may frame it. There is no form-action: browsers
// would refuse to be sent from the form to the provider.
func (s *SSO) show(w http.ResponseWriter, status int, p page) {
	noStore(w)
	for name, value := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
		"X-Content-Type-Options":  "nosniff",
	} {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	_ = s.template.Execute(w, p) // fails if the client has gone
}

// noStore keeps an answer, and the address of its page, from caches and other sites.
func noStore(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
}
