package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/guesses"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

const signUpTitle = "Sign up"

// SignsUp reports whether people may make accounts for themselves. A provider of sign-ins decides that where there is one.
func (s *SignIns) SignsUp() bool { return s.Mails() && s.config.SignUp.Open && s.config.Redeem == nil }

func (s *SignIns) signUpPage(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, accountPage{Title: signUpTitle, Form: "signup"}, nil)
}

// signUp mails a person a link that makes an account (codalab/rest/account.py: do_signup). Until it is used there is no user: the
// name is free, and nobody can sign in. CodaLab's page names the addresses to go on to, and this server's own page none.
func (s *SignIns) signUp(w http.ResponseWriter, r *http.Request) {
	err := s.askSignUp(w, r)
	no, refused := errors.AsType[*rest.RefusalError](err)
	to, email := r.PostForm.Get("success_uri"), field(r, "email")
	switch {
	case refused && r.PostForm.Has("error_uri"):
		back := url.Values{"error": {no.Message}, "next": {to}}
		for _, field := range []string{"email", "username", "first_name", "last_name", "affiliation"} {
			back.Set(field, r.PostForm.Get(field))
		}
		path, _, _ := strings.Cut(rest.LocalPath(r.PostForm.Get("error_uri")), "?")
		rest.Go(w, r, path+"?"+back.Encode())
	case err != nil:
		s.answer(w, r, accountPage{Title: signUpTitle, Form: "signup"}, err)
	case to != "":
		path, _, _ := strings.Cut(rest.LocalPath(to), "?")
		rest.Go(w, r, path+"?"+url.Values{"email": {email}}.Encode())
	default:
		s.answer(w, r, accountPage{Title: signUpTitle, Done: "A mail with a link is on its way to " + email + ". The account is made when you have confirmed the address, within a day."}, nil)
	}
}

// askSignUp refuses a sign-up before anything is stored. The tries of names are bounded like guesses of passwords, because a name
// that is taken sends no mail.
func (s *SignIns) askSignUp(w http.ResponseWriter, r *http.Request) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	c, password := store.Confirmation{
		Email: field(r, "email"), Name: field(r, "username"), FirstName: termtext.OneLine(field(r, "first_name")),
		LastName: termtext.OneLine(field(r, "last_name")), Affiliation: termtext.OneLine(field(r, "affiliation")),
	}, r.PostForm.Get("password")
	if err := s.checkAccount(c, password); err != nil {
		return err
	}
	if password != r.PostForm.Get("confirm_password") {
		return rest.Refuse(http.StatusBadRequest, "The two passwords differ.")
	}
	attempt := guesses.Attempt{Name: "sign-up as " + c.Name, Network: s.network(r)}
	leave, err := s.mayTry(r.Context(), attempt, "Too many tries to sign up with this name, or from your network.")
	if err != nil {
		return err
	}
	defer leave()
	if err := s.checkFree(r.Context(), c.Name); err != nil {
		return err
	}
	s.guesses.Right(attempt)
	if err := s.mayMail(attempt.Network, c.Email); err != nil {
		return err
	}
	now := s.config.Now()
	code, hash := NewResetCode()
	m := s.confirmation(c.Name, c.Email, code, "a day")
	return s.post(r.Context(), func(ctx context.Context) error {
		c.Code, c.Password, c.Expires = hash, HashPassword(password, s.config.Cost), store.Time{Time: now.Add(signUpLife)}
		err := s.config.Store.AddConfirmation(ctx, c, now)
		if errors.Is(err, store.ErrTooMany) {
			return rest.Refuse(http.StatusServiceUnavailable, "Too many people sign up. Try again later, or ask the operator of this server.")
		}
		return err
	}, func(context.Context) ([]mail.Mail, error) { return []mail.Mail{m}, nil })
}

// checkAccount refuses an account that nobody may have.
func (s *SignIns) checkAccount(in store.Confirmation, password string) error {
	if !codalab.IsName(in.Name) {
		return rest.Refuse(http.StatusBadRequest, "User name characters must be alphanumeric, underscores, periods, or dashes.")
	}
	if err := errors.Join(access.CheckNameSize(in.Name), access.CheckSystemName(store.User{}, in.Name)); err != nil {
		return err
	}
	for _, text := range []string{in.FirstName, in.LastName, in.Affiliation} {
		const longest = 255
		if len(text) > longest {
			return rest.Refuse(http.StatusBadRequest, "A text of the account is longer than %d bytes", longest)
		}
	}
	if !isAddress(in.Email) {
		return rest.Refuse(http.StatusBadRequest, "This is no e-mail address.")
	}
	if err := s.checkDomain(in.Email); err != nil {
		return err
	}
	if err := CheckNewPassword(password, in.Name); err != nil {
		return rest.Refuse(http.StatusBadRequest, "%s", err)
	}
	return nil
}

// checkDomain refuses an address that may not sign up. The domains may change before the address is confirmed.
func (s *SignIns) checkDomain(email string) error {
	domain, all := email[strings.LastIndex(email, "@")+1:], s.config.SignUp.Domains
	if len(all) > 0 && !slices.ContainsFunc(all, func(one string) bool { return strings.EqualFold(one, domain) }) {
		return rest.Refuse(http.StatusForbidden, "Only addresses of %s may sign up.", strings.Join(all, ", "))
	}
	return nil
}

// checkFree refuses a name that a user has or had. Whether a user has the address is told only to its owner.
func (s *SignIns) checkFree(ctx context.Context, name string) error {
	err := s.config.Store.CheckUserName(ctx, name)
	if errors.Is(err, store.ErrExists) {
		return rest.Refuse(http.StatusBadRequest, "User name %s is already taken.", name)
	}
	return err
}

// newUser is the user that a sign-up makes.
func (s *SignIns) newUser(c store.Confirmation) store.User {
	up := s.config.SignUp
	return store.User{
		ID: codalab.NewUUID(), Name: c.Name, Password: c.Password, Joined: store.Time{Time: s.config.Now()},
		FirstName: c.FirstName, LastName: c.LastName, Affiliation: c.Affiliation,
		TimeQuota: up.TimeQuota, DiskQuota: up.DiskQuota, ParallelRunQuota: up.ParallelRunQuota,
	}
}
