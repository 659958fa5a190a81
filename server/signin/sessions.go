package signin

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// listSessions answers with the user's sessions, the last used first. CodaLab's own server has no such route.
func (s *SignIns) listSessions(w http.ResponseWriter, r *http.Request, u store.User) error {
	sessions, err := s.config.Store.Sessions(r.Context(), u.ID, s.config.Now())
	if err != nil {
		return err
	}
	objects := []codalab.Object{}
	for _, one := range sessions {
		objects = append(objects, codalab.NewObject("sessions", one.ID, codalab.Session{
			Program: one.Program, Client: one.Client, Address: one.Address, Made: one.Made.UTC(), Used: one.Used.UTC(), Current: one.ID == u.SessionID,
		}))
	}
	return rest.WriteDocument(w, objects, nil)
}

// endSession ends one of the user's sessions.
func (s *SignIns) endSession(w http.ResponseWriter, r *http.Request, u store.User) error {
	id := r.PathValue("session")
	err := s.config.Store.EndSession(r.Context(), u.ID, id)
	if errors.Is(err, store.ErrNotFound) {
		return rest.Refuse(http.StatusNotFound, "You have no session '%s'.", id)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// endOtherSessions ends the user's sessions, except that of the request.
func (s *SignIns) endOtherSessions(w http.ResponseWriter, r *http.Request, u store.User) error {
	n, err := s.config.Store.EndSessions(r.Context(), u.ID, u.SessionID)
	if err != nil {
		return err
	}
	return rest.WriteMeta(w, "ended_sessions", n)
}

// changePassword changes the user's password. The user must know the old one: a thief of a token does not. Wrong ones
// count like failed sign-ins.
func (s *SignIns) changePassword(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in codalab.PasswordChange
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	c, err := s.check(r.Context(), try{name: u.Name, password: in.Old, address: s.config.Address(r), session: u.SessionID})
	if errors.Is(err, store.ErrNotFound) {
		return rest.Refuse(http.StatusForbidden, "The old password is wrong.")
	}
	if err != nil {
		return err
	}
	if err := CheckNewPassword(in.New, u.Name); err != nil {
		return rest.Refuse(http.StatusBadRequest, "%s", err)
	}
	n, err := s.config.Store.SetPassword(r.Context(), store.NewPassword{
		UserID: u.ID, Hashed: HashPassword(in.New, s.config.Cost), Checked: c.user.Password, Session: u.SessionID,
	}, s.config.Now())
	if errors.Is(err, store.ErrNotFound) {
		return rest.Refuse(http.StatusConflict, "The password was changed meanwhile.")
	}
	if err != nil {
		return err
	}
	s.config.Log.LogAttrs(r.Context(), slog.LevelInfo, "password changed", slog.String("user", u.Name), slog.String("address", s.config.Address(r)))
	return rest.WriteMeta(w, "ended_sessions", n)
}

// tryAgain is the sentence with the time to wait.
func tryAgain(wait time.Duration) string {
	if seconds := int(wait / time.Second); seconds != 1 {
		return fmt.Sprintf("Try again in %d seconds.", seconds)
	}
	return "Try again in 1 second."
}
