package signin

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// ResetPath is that of the page on which a user sets a new password by a one-time code. The operator's code is typed into the
// page and sent in a form. It is in no address, because addresses are in the logs of servers and proxies, in the history of
// browsers, and in the header Referer. (RFC 8628 does the same with its user codes.) The link in a mail has its code in the
// address.
const ResetPath = "/rest/account/reset"

// ResetLife is the time for which a one-time code is valid.
const ResetLife = time.Hour

// NewResetCode returns a one-time code, and its hash for the store.
func NewResetCode() (code, hash string) {
	const groups, letters = 5, 5 // 125 random bits
	text := rand.Text()
	var parts []string
	for i := range groups {
		parts = append(parts, text[i*letters:(i+1)*letters])
	}
	code = strings.Join(parts, "-")
	return code, hashCode(code)
}

// hashCode returns the hash of a code as somebody has typed it.
func hashCode(code string) string {
	return hashToken(strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToUpper(strings.TrimSpace(code))))
}

// resetTitle is that of the pages for a new password.
const resetTitle = "New password"

// ResetPage shows the page for a new password (codalab/rest/account.py: request_reset_get). CodaLab's own server mails a link to a
// user who opens it; this one waits for the form, because other sites can make a browser open an address.
func (s *SignIns) ResetPage(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, s.resetForm(), nil)
}

func (s *SignIns) resetForm() accountPage {
	return accountPage{Title: resetTitle, Form: "reset", Mails: s.Mails()}
}

// askReset mails a link for a new password to the users with an address (codalab/rest/account.py: request_reset_post). The answer
// and its time are the same if there is no such user.
func (s *SignIns) askReset(w http.ResponseWriter, r *http.Request) {
	if err := s.postReset(w, r); err != nil {
		s.answer(w, r, s.resetForm(), err)
		return
	}
	s.answer(w, r, accountPage{Title: resetTitle, Done: "If a user has this address, a mail with a link is on its way. The link is valid for an hour."}, nil)
}

func (s *SignIns) postReset(w http.ResponseWriter, r *http.Request) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	email := field(r, "email")
	if !isAddress(email) {
		return rest.Refuse(http.StatusBadRequest, "This is no e-mail address.")
	}
	if err := s.mayMail(s.network(r), email); err != nil {
		return err
	}
	from := s.config.Address(r)
	return s.post(r.Context(), func(context.Context) error { return nil }, func(ctx context.Context) ([]mail.Mail, error) { return s.writeResets(ctx, email, from) })
}

// writeResets writes the mails for new passwords of the users with an address. root and worker accounts get none. Users without a
// password were locked by an import, and get none either. Nor do users who sign in by a provider: it may have ended that.
func (s *SignIns) writeResets(ctx context.Context, email, from string) (mails []mail.Mail, err error) {
	users, err := s.config.Store.UsersByEmail(ctx, email)
	for _, u := range users {
		if u.Root() || u.IsWorker || CheckPasswordHash(u.Password) != nil || !isAddress(u.Email) {
			continue
		}
		code, hash := NewResetCode()
		now := s.config.Now()
		err := s.config.Store.AddMailedReset(ctx, u, hash, now.Add(ResetLife))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return mails, err
		}
		s.config.Log.LogAttrs(ctx, slog.LevelInfo, "mails a link for a new password", slog.String("user", u.Name), slog.String("address", from))
		mails = append(mails, mail.Mail{To: u.Email, Subject: "CodaLab: a new password", ID: codalab.NewUUID(), At: now, Text: "Somebody has asked for a new password of the user " + u.Name + " of " + s.config.PublicURL +
			".\nThis page takes it, once and within an hour:\n\n  " + s.link("/account/reset/verify/"+code) +
			"\n\nAll sessions of " + u.Name + " end then. If you have not asked for it, do nothing: the password stays.\n"})
	}
	return mails, err
}

// showReset shows the form for a new password by the link in a mail (codalab/rest/account.py: verify_reset_code). It changes
// nothing: programs that look at mails open links, too.
func (s *SignIns) showReset(w http.ResponseWriter, r *http.Request) {
	code := r.PathValue("code")
	_, err := s.config.Store.UserOfReset(r.Context(), hashCode(code), s.config.Now())
	if errors.Is(err, store.ErrNotFound) {
		s.answer(w, r, s.resetForm(), s.invalidCode())
		return
	}
	s.answer(w, r, accountPage{Title: resetTitle, Form: "password", Code: code}, err)
}

func (s *SignIns) invalidCode() error {
	from := "Ask the server's operator for another one."
	if s.Mails() {
		from = "Ask for another one."
	}
	return rest.Refuse(http.StatusForbidden, "This code is not valid: it has been used, is older than an hour, or is mistyped. %s", from)
}

// Reset sets a new password by a one-time code (codalab/rest/account.py: reset_finalize). It answers browsers with the
// page, and programs as all other routes do.
func (s *SignIns) Reset(w http.ResponseWriter, r *http.Request) {
	err := s.reset(w, r)
	p := accountPage{Title: resetTitle, Done: "The password is changed. All sessions have ended: sign in again."}
	if err != nil {
		p = s.resetForm()
	}
	if rest.HasStatus(err, http.StatusBadRequest) && r.PostForm.Has("code") { // the code goes on to be valid
		p = accountPage{Title: resetTitle, Form: "password", Code: r.PostForm.Get("code")}
	}
	s.answer(w, r, p, err)
}

func (s *SignIns) reset(w http.ResponseWriter, r *http.Request) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	code, password := hashCode(r.PostForm.Get("code")), r.PostForm.Get("password")
	u, err := s.config.Store.UserOfReset(r.Context(), code, s.config.Now())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return s.invalidCode()
	case err != nil:
		return err
	case password != r.PostForm.Get("confirm_password"):
		return rest.Refuse(http.StatusBadRequest, "The two passwords differ.")
	}
	if err := CheckNewPassword(password, u.Name); err != nil {
		return rest.Refuse(http.StatusBadRequest, "%s", err)
	}
	leave, err := s.known.Take(r.Context(), turns.Party{Owner: u.Name})
	if err != nil {
		return err
	}
	hashed := HashPassword(password, s.config.Cost)
	leave()
	_, err = s.config.Store.SetPassword(r.Context(), store.NewPassword{UserID: u.ID, Hashed: hashed, Code: code}, s.config.Now())
	if errors.Is(err, store.ErrNotFound) {
		return s.invalidCode()
	}
	if err == nil {
		s.config.Log.LogAttrs(r.Context(), slog.LevelInfo, "password changed by a one-time code", slog.String("user", u.Name), slog.String("address", s.config.Address(r)))
	}
	return err
}
