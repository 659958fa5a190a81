package pages

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/cl-slurm/cl-slurm/server/rest"
)

// home shows the user's runs, or asks for a sign-in.
func (p *Pages) home(v *visit) error {
	to := "/runs"
	if v.user.UserName == "" {
		to = "/signin"
	}
	rest.Go(v.ResponseWriter, v.Request, to)
	return nil
}

// signInForm is the form of signin.html.
type signInForm struct {
	Name, Next, Problem string
	// Mails and SignUp are those of Config.
	Mails, SignUp bool
}

func (p *Pages) signInPage(v *visit) error {
	next := rest.LocalPath(v.URL.Query().Get("next"))
	if v.user.UserName != "" {
		rest.Go(v.ResponseWriter, v.Request, next)
		return nil
	}
	return p.show(v, http.StatusOK, "signin", "Sign in", signInForm{Next: next, Mails: p.config.Mails, SignUp: p.config.SignUp})
}

// signIn begins a browser's session.
func (p *Pages) signIn(v *visit) error {
	form, err := readForm(v)
	if err != nil {
		return err
	}
	f := signInForm{Name: form.Get("name"), Next: rest.LocalPath(form.Get("next")), Mails: p.config.Mails, SignUp: p.config.SignUp}
	err = p.config.SignIn(v.ResponseWriter, v.Request, f.Name, form.Get("password"))
	no, refused := errors.AsType[*rest.RefusalError](err)
	switch {
	case err == nil:
		rest.Go(v.ResponseWriter, v.Request, f.Next)
		return nil
	case !refused || no.Status != http.StatusUnauthorized && no.Status != http.StatusTooManyRequests:
		return err
	}
	f.Problem = no.Message
	return p.show(v, no.Status, "signin", "Sign in", f)
}

func (p *Pages) signOut(v *visit) error {
	if _, err := readForm(v); err != nil {
		return err
	}
	if err := p.config.SignOut(v.ResponseWriter, v.Request); err != nil {
		return err
	}
	rest.Go(v.ResponseWriter, v.Request, "/signin")
	return nil
}

// readForm reads a small form that a page of this server has sent.
func readForm(v *visit) (url.Values, error) { return readFormOf(v, 1<<20) }

// readFormOf reads a form of at most so many bytes that a page of this server has sent.
func readFormOf(v *visit, largest int64) (url.Values, error) {
	if err := rest.CheckSite(v.Request); err != nil {
		return nil, err
	}
	v.Body = http.MaxBytesReader(v.ResponseWriter, v.Body, largest)
	if err := v.ParseForm(); err != nil {
		return nil, rest.Refuse(http.StatusBadRequest, "The form cannot be read.")
	}
	return v.PostForm, nil
}
