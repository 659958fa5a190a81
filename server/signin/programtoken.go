package signin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// MaxProgramTokens bounds the program tokens of one user that have not ended.
const MaxProgramTokens = 100

// maxTokenDays bounds the validity of a token that has an end.
const maxTokenDays = 36_500

// NewProgramToken returns a program token of a user, and its row for the store. Its error is for people.
func NewProgramToken(userID string, in codalab.ProgramTokenRequest, now time.Time) (token string, t store.ProgramToken, err error) {
	workers, err := store.ParseWorkerNames(in.Workers)
	if err != nil {
		return "", store.ProgramToken{}, err
	}
	if in.Days < 0 || in.Days > maxTokenDays {
		return "", store.ProgramToken{}, errors.New("a token is valid for 1 to 36500 days, or with 0 has no end")
	}
	token, id := codalab.NewProgramToken()
	t = store.ProgramToken{
		ID: id, Token: hashToken(token), UserID: userID, Workers: workers, Manages: in.Manager, Created: store.Time{Time: now},
	}
	if in.Days > 0 {
		t.Expires = store.Time{Time: now.Add(time.Duration(in.Days) * 24 * time.Hour)}
	}
	return token, t, nil
}

// ShowProgramToken describes a program token of the user with a name.
func ShowProgramToken(t store.ProgramToken, userName string) codalab.ProgramToken {
	seconds := func(at store.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return at.Unix()
	}
	return codalab.ProgramToken{
		ID: t.ID, User: userName, Workers: t.Workers.List(), Manager: t.Manages,
		Created: seconds(t.Created), LastUsed: seconds(t.LastUsed), Expires: seconds(t.Expires),
	}
}

// addProgramToken gives out a program token for workers of the user, who has signed in.
func (s *SignIns) addProgramToken(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in codalab.ProgramTokenRequest
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	token, t, err := NewProgramToken(u.ID, in, s.config.Now())
	if err != nil {
		return rest.Refuse(http.StatusBadRequest, "%s", err.Error())
	}
	t.ByLogin = true
	err = s.config.Store.AddProgramToken(r.Context(), t, MaxProgramTokens)
	if errors.Is(err, store.ErrTooMany) {
		return rest.Refuse(http.StatusForbidden, "You have %d program tokens already. Remove those that you do not need.", MaxProgramTokens)
	}
	if err != nil {
		return err
	}
	rest.NoteObject(r.Context(), t.ID)
	shown := ShowProgramToken(t, u.Name)
	shown.Access = token
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return rest.WriteJSON(w, http.StatusOK, shown)
}

// listProgramTokens lists the user's program tokens.
func (s *SignIns) listProgramTokens(w http.ResponseWriter, r *http.Request, u store.User) error {
	all, err := s.config.Store.ProgramTokens(r.Context(), u.ID)
	if err != nil {
		return err
	}
	shown := []codalab.ProgramToken{}
	for _, t := range all {
		shown = append(shown, ShowProgramToken(t, u.Name))
	}
	return rest.WriteJSON(w, http.StatusOK, shown)
}

// endProgramToken ends a program token of the user.
func (s *SignIns) endProgramToken(w http.ResponseWriter, r *http.Request, u store.User) error {
	id := r.PathValue("token")
	err := s.config.Store.DeleteProgramToken(r.Context(), u.ID, id)
	if errors.Is(err, store.ErrNotFound) {
		return rest.Refuse(http.StatusNotFound, "You have no program token %s", id)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ownProgramToken describes the program token of the request. Route.Admit has compared it with the worker.
func (s *SignIns) ownProgramToken(w http.ResponseWriter, _ *http.Request, u store.User) error {
	if u.Program.ID == "" {
		return rest.Refuse(http.StatusNotFound, "This login is no program token.")
	}
	return rest.WriteJSON(w, http.StatusOK, ShowProgramToken(u.Program, u.Name))
}

// noteProgramUse notes that a program token is in use. A failure is in the log alone: the request goes on.
func (s *SignIns) noteProgramUse(ctx context.Context, t store.ProgramToken) {
	now := s.config.Now()
	if now.Sub(t.LastUsed.Time) < store.ProgramUseStep {
		return
	}
	if err := s.config.Store.NoteProgramTokenUsed(ctx, t.ID, now); err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "the use of a program token was not noted", slog.String("program_token", t.ID), slog.String("error", err.Error()))
	}
}
