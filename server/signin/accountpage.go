package signin

import (
	_ "embed"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/server/rest"
)

//go:embed account.html
var accountHTML string

// accountPage has the values of a page about an account.
type accountPage struct {
	Title string
	// Problem is that of the last try, and Done its success; both may be empty.
	Problem, Done string
	// Form is the page's form: reset, password, confirm, email or signup; empty for a link to the sign-in.
	Form string
	// Mails offers a link by mail for a new password.
	Mails bool
	// Code is the one-time code of a link. Name and Email are those of a user.
	Code, Name, Email string
	// Typed are the fields of a form that was refused. The page shows them again, except for passwords.
	Typed url.Values
}

func newAccountTemplate() *template.Template {
	return template.Must(template.New("page").Parse(accountHTML))
}

// write writes the page. It has no script, and loads nothing; no other page may frame it. Its address may have a code, so that
// the header Referer has the origin alone, also for this server's own log and for scripts of CodaLab's web page. No Referer
// at all would be too little: the browser would send the forms with "Origin: null", which rest.CheckSite refuses where
// Sec-Fetch-Site is missing, as over plain HTTP.
func (s *SignIns) write(w http.ResponseWriter, status int, p accountPage) {
	for name, value := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"Referrer-Policy":         "strict-origin",
		"X-Content-Type-Options":  "nosniff",
		"Cache-Control":           "no-store",
	} {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	_ = s.page.Execute(w, p) // fails if the client has gone
}

// answer shows a page, with the problem if err is a refusal. Programs get that as from all other routes.
func (s *SignIns) answer(w http.ResponseWriter, r *http.Request, p accountPage, err error) {
	no, refused := errors.AsType[*rest.RefusalError](err)
	browser := r.Header.Get("X-Requested-With") == ""
	switch {
	case err == nil:
		s.write(w, http.StatusOK, p)
	case refused && browser:
		if no.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(no.RetryAfter/time.Second)))
		}
		p.Problem, p.Typed = no.Message, r.PostForm
		s.write(w, no.Status, p)
	default:
		s.answerError(w, r, err)
	}
}

// answerError answers a request that failed. The log gets the route of the request, and not its path, which may have a code.
func (s *SignIns) answerError(w http.ResponseWriter, r *http.Request, err error) {
	_, route, _ := strings.Cut(r.Pattern, " ")
	logged := r.WithContext(r.Context())
	logged.URL = &url.URL{Path: route}
	rest.AnswerError(s.config.Log, w, logged, err)
}

// readForm reads a form that a page of this site has sent.
func readForm(w http.ResponseWriter, r *http.Request) error {
	if err := rest.CheckSite(r); err != nil {
		return err
	}
	const largest = 8 << 10
	r.Body = http.MaxBytesReader(w, r.Body, largest)
	if err := r.ParseForm(); err != nil {
		return rest.Refuse(http.StatusBadRequest, "The form cannot be read.")
	}
	for _, values := range r.PostForm {
		for _, value := range values {
			if !rest.IsText(value) {
				return rest.Refuse(http.StatusBadRequest, "The form has no text.")
			}
		}
	}
	return nil
}

// field returns a field of a form that readForm has read, without the spaces around it. It is a copy: fields are parts of the
// request's body, which whoever keeps one would keep, too.
func field(r *http.Request, name string) string {
	return strings.Clone(strings.TrimSpace(r.PostForm.Get(name)))
}
