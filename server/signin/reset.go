package signin

import (
	"crypto/rand"
	_ "embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// ResetPath is that of the page on which a user sets a new password by a one-time code. The code is typed into the page
// and sent in a form. It is in no address, because addresses are in the logs of servers and proxies, in the history of
// browsers, and in the header Referer. (RFC 8628 does the same with its user codes.)
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

//go:embed reset.html
var resetHTML string

// resetPage has the values of the page.
type resetPage struct {
	Problem string // of the last try; empty for none
	Done    bool
}

// ResetPage shows the page for a new password (codalab/rest/account.py: request_reset_get).
func (s *SignIns) ResetPage(w http.ResponseWriter, r *http.Request) {
	rest.AnswerError(s.config.Log, w, r, writeResetPage(w, http.StatusOK, resetPage{}))
}

// writeResetPage writes the page. It has no script, and loads nothing; no other page may frame it.
func writeResetPage(w http.ResponseWriter, status int, page resetPage) error {
	t, err := template.New("page").Parse(resetHTML)
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
	_ = t.Execute(w, page) // fails if the client has gone
	return nil
}

// Reset sets a new password by a one-time code (codalab/rest/account.py: reset_finalize). It answers browsers with the
// page, and programs as all other routes do.
func (s *SignIns) Reset(w http.ResponseWriter, r *http.Request) {
	err := s.reset(w, r)
	var no *rest.RefusalError
	switch browser := r.Header.Get("X-Requested-With") == ""; {
	case err == nil:
		err = writeResetPage(w, http.StatusOK, resetPage{Done: true})
	case browser && errors.As(err, &no):
		err = writeResetPage(w, no.Status, resetPage{Problem: no.Message})
	}
	rest.AnswerError(s.config.Log, w, r, err)
}

func (s *SignIns) reset(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	if err := r.ParseForm(); err != nil {
		return rest.Refuse(http.StatusBadRequest, "The form cannot be read.")
	}
	invalid := rest.Refuse(http.StatusForbidden, "This code is not valid: it has been used, is older than an hour, or is mistyped. Ask the server's operator for another one.")
	code, password := hashCode(r.PostForm.Get("code")), r.PostForm.Get("password")
	u, err := s.config.Store.UserOfReset(r.Context(), code, s.config.Now())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return invalid
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
		return invalid
	}
	if err == nil {
		s.config.Log.LogAttrs(r.Context(), slog.LevelInfo, "password changed by a one-time code", slog.String("user", u.Name), slog.String("address", s.config.Address(r)))
	}
	return err
}
