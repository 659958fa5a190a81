package signin

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/cl-slurm/cl-slurm/server/rest"
)

// PageCall is a call of CodaLab's web page about accounts (codalab/rest/account.py). It needs no token.
type PageCall struct {
	Pattern string
	// Differs is its difference to CodaLab's own server.
	Differs string
	Answer  http.HandlerFunc
}

// PageCalls returns these calls. Where the server mails nobody about accounts, they answer with a sentence.
func (s *SignIns) PageCalls() []PageCall {
	const (
		accounts = "The operator of this server gives out accounts: ask there for one."
		address  = "Ask the operator of this server to change your email address."
		code     = "Ask the operator of this server for a one-time code, and enter it at " + ResetPath + "."
		ours     = "only this server has it: "
	)
	instead := func(active bool, path, sentence string) func(http.HandlerFunc) http.HandlerFunc {
		return func(answer http.HandlerFunc) http.HandlerFunc {
			if active {
				return answer
			}
			return sayInstead(path, sentence)
		}
	}
	signUp, change := instead(s.SignsUp(), "/account/signup", accounts), instead(s.Mails(), "/account/changeemail", address)
	confirm, reset := instead(s.Mails(), "/account/login", accounts), instead(s.Mails(), "/account/reset", code)
	calls := []PageCall{
		{"GET /account/signup", ours + "the page for a new account", signUp(s.signUpPage)},
		{"POST /account/signup", "the account is made when its address is confirmed; no reCAPTCHA", signUp(s.signUp)},
		{"GET /account/resend", "shows the page for an e-mail address, and sends no mail", confirm(s.emailPage)},
		{"GET /account/verify/{key}", "shows the page that confirms an e-mail address by the password, and changes nothing", confirm(s.showConfirm)},
		{"POST /account/verify", ours + "it confirms an e-mail address by the code in a mail and the password", confirm(s.confirm)},
		{"POST /account/reset", "does not tell whether a user has the address; root, worker accounts, users without a password and users who sign in by a provider get no mail", reset(s.askReset)},
		{"GET /account/reset/verify/{code}", "shows the page for a new password", reset(s.showReset)},
		{"GET /account/changeemail", ours + "the page for another e-mail address", change(s.emailPage)},
		{"POST /account/changeemail", "the new address counts when it is confirmed, and the old one until then; a mail tells the old one", change(s.changeEmail)},
	}
	for i := range calls {
		needs := "--mail-server and --public-url"
		if strings.HasSuffix(calls[i].Pattern, "/signup") {
			needs = "--sign-up"
		}
		calls[i].Differs += "; without " + needs + " it sends the browser back to its page with a sentence"
	}
	return calls
}

// sayInstead sends a browser back to its page with a sentence (codalab/rest/account.py: redirect_with_query).
func sayInstead(path, sentence string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rest.Drain(w, r, false)
		http.Redirect(w, r, path+"?"+url.Values{"error": {sentence}}.Encode(), http.StatusSeeOther)
	}
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
