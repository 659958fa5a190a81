package signin

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/cl-slurm/cl-slurm/server/rest"
)

// PageCall is a call of CodaLab's web page about accounts that this server answers with a sentence: its operator adds users and
// resets passwords, and it mails nobody about them.
type PageCall struct {
	Pattern string
	// path is the page that shows the sentence.
	path, sentence string
}

// PageCalls returns these calls (codalab/rest/account.py).
func PageCalls() []PageCall {
	const signUp = "The operator of this server gives out accounts: ask there for one."
	return []PageCall{
		{"POST /account/signup", "/account/signup", signUp},
		{"GET /account/resend", "/account/login", signUp},
		{"GET /account/verify/{key}", "/account/login", signUp},
		{"POST /account/reset", "/account/reset", "Ask the operator of this server for a one-time code, and enter it at " + ResetPath + "."},
		{"GET /account/reset/verify/{code}", "/account/reset", "Enter the code at " + ResetPath + "."},
		{"POST /account/changeemail", "/account/changeemail", "Ask the operator of this server to change your email address."},
	}
}

// Answer sends a browser back to its page with the sentence (codalab/rest/account.py: redirect_with_query).
func (c PageCall) Answer(w http.ResponseWriter, r *http.Request) {
	rest.Drain(w, r, false)
	http.Redirect(w, r, c.path+"?"+url.Values{"error": {c.sentence}}.Encode(), http.StatusSeeOther)
}

// PageStyle answers with the rules by which an older page of CodaLab hides parts of itself (codalab/rest/account.py: css). It
// goes by the page's cookie alone, because it tells nothing of a user.
func PageStyle(w http.ResponseWriter, r *http.Request) {
	hidden := ".user-authenticated"
	if _, err := r.Cookie(rest.PageCookie); err == nil {
		hidden = ".user-not-authenticated"
	}
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = strings.NewReader(hidden + " { display: none !important; }\n").WriteTo(w) // fails if the client has gone
}
