package signin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/guesses"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// The times for which an address can be confirmed: that of a user, and that of a person who signs up.
const (
	confirmLife = 3 * 24 * time.Hour
	signUpLife  = 24 * time.Hour
)

const (
	emailTitle   = "E-mail address"
	confirmTitle = "Confirm an e-mail address"
)

// emailPage shows the form for another e-mail address. CodaLab's own server mails the link again to a user who opens resend; this
// one waits for the form.
func (s *SignIns) emailPage(w http.ResponseWriter, r *http.Request) {
	u, err := s.ownUser(r)
	s.answer(w, r, emailForm(u), err)
}

func emailForm(u store.User) accountPage {
	p := accountPage{Title: emailTitle, Name: u.Name, Email: u.Email}
	if u.ID != "" {
		p.Form = "email"
	}
	return p
}

// ownUser is the person who has signed in, with all permissions of a user.
func (s *SignIns) ownUser(r *http.Request) (store.User, error) {
	u, err := s.authenticate(r)
	switch {
	case err != nil:
		return store.User{}, err
	case u.ID == "":
		return u, rest.Refuse(http.StatusUnauthorized, "Sign in first.")
	case u.Bounded() || u.IsWorker:
		return store.User{}, rest.Refuse(http.StatusForbidden, "This sign-in is for programs.")
	case CheckPasswordHash(u.Password) != nil:
		return store.User{}, rest.Refuse(http.StatusForbidden, "This account has no password: the operator of this server changes its e-mail address.")
	}
	return u, nil
}

// changeEmail mails a link that confirms another e-mail address of the user, and tells the old one (codalab/rest/account.py:
// request_change_email). CodaLab's own server takes the new address at once, and shuts the user out until it is confirmed.
func (s *SignIns) changeEmail(w http.ResponseWriter, r *http.Request) {
	u, err := s.ownUser(r)
	if err == nil {
		err = s.askChange(w, r, u)
	}
	if err != nil {
		s.answer(w, r, emailForm(u), err)
		return
	}
	s.answer(w, r, accountPage{Title: emailTitle, Done: "A mail with a link is on its way to the new address, which counts when you have confirmed it. The link is valid for three days."}, nil)
}

func (s *SignIns) askChange(w http.ResponseWriter, r *http.Request, u store.User) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	email := field(r, "email")
	switch {
	case !isAddress(email):
		return rest.Refuse(http.StatusBadRequest, "This is no e-mail address.")
	case email == u.Email:
		return rest.Refuse(http.StatusBadRequest, "Your e-mail address is %s already.", email)
	}
	if err := s.mayMail("user "+u.ID, "user "+u.ID); err != nil {
		return err
	}
	if err := s.mayMail(s.network(r), email); err != nil {
		return err
	}
	now := s.config.Now()
	code, hash := NewResetCode()
	mails := []mail.Mail{s.confirmation(u.Name, email, code, "three days")}
	if isAddress(u.Email) {
		mails = append(mails, mail.Mail{To: u.Email, Subject: "CodaLab: another e-mail address", ID: codalab.NewUUID(), At: now, Text: "The user " + u.Name + " of " + s.config.PublicURL +
			" has asked for another e-mail address: " + email +
			".\nIt counts when it is confirmed. If you have not asked for it, change your password: that ends the change, and all sessions.\n\n  " + s.link("/account/reset") + "\n"})
	}
	c := store.Confirmation{Code: hash, UserID: u.ID, Email: email, Expires: store.Time{Time: now.Add(confirmLife)}}
	return s.post(r.Context(), func(ctx context.Context) error { return s.config.Store.AddConfirmation(ctx, c, now) }, func(context.Context) ([]mail.Mail, error) { return mails, nil })
}

// confirmation is the mail that asks to confirm an address within a time.
func (s *SignIns) confirmation(name, email, code, within string) mail.Mail {
	return mail.Mail{To: email, Subject: "CodaLab: confirm this address", ID: codalab.NewUUID(), At: s.config.Now(), Text: "The user " + name + " of " + s.config.PublicURL +
		" has given this e-mail address. This page confirms it, within " + within + " and with the password of " + name + ":\n\n  " + s.link("/account/verify/"+code) +
		"\n\nIf that is not you, do nothing.\n"}
}

// showConfirm shows the page that confirms an address (codalab/rest/account.py: do_verify). It changes nothing: programs that
// look at mails open links, too.
func (s *SignIns) showConfirm(w http.ResponseWriter, r *http.Request) {
	code := r.PathValue("key")
	p, _, err := s.confirmForm(r, code)
	s.answer(w, r, p, err)
}

func (s *SignIns) confirmForm(r *http.Request, code string) (accountPage, store.Confirmation, error) {
	p := accountPage{Title: confirmTitle}
	c, err := s.config.Store.Confirmation(r.Context(), hashCode(code), s.config.Now())
	switch {
	case err != nil:
	case c.UserID != "":
		var u store.User
		u, err = s.config.Store.User(r.Context(), c.UserID)
		c.Name = u.Name
	case s.SignsUp():
		err = s.checkDomain(c.Email)
	default:
		err = store.ErrNotFound
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return p, c, invalidLink()
	case err == nil:
		p.Form, p.Code, p.Name, p.Email = "confirm", code, c.Name, c.Email
	}
	return p, c, err
}

func invalidLink() error {
	return rest.Refuse(http.StatusForbidden, "This link is not valid: it has been used, is too old, or there was another one since.")
}

// confirm confirms an address by a code and the password. Whoever has only the mail confirms nothing: else a person's address
// could become that of a stranger's account by one click. A stolen session has no password either.
func (s *SignIns) confirm(w http.ResponseWriter, r *http.Request) {
	p := accountPage{Title: confirmTitle}
	err := readForm(w, r)
	if err == nil {
		var c store.Confirmation
		if p, c, err = s.confirmForm(r, r.PostForm.Get("code")); err == nil {
			err = s.confirmAddress(r, c, r.PostForm.Get("password"))
		}
	}
	if err == nil {
		p = accountPage{Title: confirmTitle, Done: "The address is confirmed."}
	}
	s.answer(w, r, p, err)
}

func (s *SignIns) confirmAddress(r *http.Request, c store.Confirmation, password string) error {
	var u store.User
	if c.UserID != "" {
		checked, err := s.check(r.Context(), try{name: c.Name, password: password, address: s.config.Address(r)})
		if errors.Is(err, store.ErrNotFound) || err == nil && checked.user.ID != c.UserID {
			return rest.Refuse(http.StatusUnauthorized, "The password is wrong.")
		}
		if err != nil {
			return err
		}
		u = checked.user
	} else {
		if err := s.checkSignUp(r, c, password); err != nil {
			return err
		}
		u = s.newUser(c)
	}
	err := s.config.Store.Confirm(r.Context(), c, u, s.config.Now())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return invalidLink()
	case errors.Is(err, store.ErrExists):
		return rest.Refuse(http.StatusConflict, "Another user has this address or name.")
	case err == nil:
		s.config.Log.LogAttrs(r.Context(), slog.LevelInfo, "e-mail address confirmed", slog.Bool("new_user", c.UserID == ""), slog.String("user", u.Name), slog.String("address", s.config.Address(r)))
	}
	return err
}

// checkSignUp checks the password with which a person has signed up. Its guesses count by the code: whoever else signs up with the
// name has another one.
func (s *SignIns) checkSignUp(r *http.Request, c store.Confirmation, password string) error {
	attempt := guesses.Attempt{Name: "sign-up " + c.Code, Network: s.network(r)}
	leave, err := s.mayTry(r.Context(), attempt, "Too many wrong passwords.")
	if err != nil {
		return err
	}
	defer leave()
	if fits, _ := passwordFits(password, c.Password, s.config.Cost); len(password) > longestPassword || !fits {
		return rest.Refuse(http.StatusUnauthorized, "The password is wrong.")
	}
	s.guesses.Right(attempt)
	return nil
}
