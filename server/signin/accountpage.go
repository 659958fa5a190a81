package signin

import (
	_ "embed"
	"errors"
	"html/template"
	"net/http"
	"strconv"
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
}

// write writes the page. It has no script, and loads nothing; no other page may frame it. Its address may have a code, which
// no Referer tells.
func (p accountPage) write(w http.ResponseWriter, status int) error {
	t, err := template.New("page").Parse(accountHTML)
	if err != nil {
		return err //nolint:wrapcheck // the template is ours
	}
	for name, value := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"Referrer-Policy":         "no-referrer",
		"X-Content-Type-Options":  "nosniff",
		"Cache-Control":           "no-store",
	} {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	_ = t.Execute(w, p) // fails if the client has gone
	return nil
}

// answer shows a page, with the problem if err is a refusal. Programs get that as from all other routes.
func (s *SignIns) answer(w http.ResponseWriter, r *http.Request, p accountPage, err error) {
	no, refused := errors.AsType[*rest.RefusalError](err)
	switch browser := r.Header.Get("X-Requested-With") == ""; {
	case err == nil:
		err = p.write(w, http.StatusOK)
	case refused && browser:
		if no.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(no.RetryAfter/time.Second)))
		}
		p.Problem = no.Message
		err = p.write(w, no.Status)
	}
	rest.AnswerError(s.config.Log, w, r, err)
}

// readForm reads a form that a page of this site has sent.
func readForm(w http.ResponseWriter, r *http.Request) error {
	if err := rest.CheckSite(r); err != nil {
		return err
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
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
