package signin

import (
	"errors"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Bounds of worker tokens.
const (
	// longestWorkerToken is enough for a job of 30 days and its time in the queue. It bounds the renewals, too: a
	// stolen token is of no use 35 days after the user's program got the first one, although the thief can
	// renew it.
	longestWorkerToken = 35 * 24 * time.Hour
	maxWorkerTokens    = 10_000 // of one user
)

// addWorkerToken gives out a token for one worker of the user. With it the worker can check in, claim its
// runs, answer reads, read the inputs of its runs and write their results, renew its token, and nothing else.
// CodaLab's own server has no such route.
func (s *SignIns) addWorkerToken(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in codalab.WorkerTokenRequest
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if u.OnlyWorker != "" {
		return s.renewWorkerToken(w, r, in)
	}
	if u.Program.ID != "" && !u.Program.Manages {
		return rest.Refuse(http.StatusForbidden, "This token makes no tokens for workers: a worker manager needs one that cl-server token add --manager makes.")
	}
	worker, longest := r.PathValue("worker"), int64(longestWorkerToken/time.Second)
	switch {
	case in.Seconds < 1 || in.Seconds > longest:
		return rest.Refuse(http.StatusBadRequest, "A worker token is valid for 1 to %d seconds", longest)
	case len(worker) > rest.MaxWorkerText:
		return rest.Refuse(http.StatusBadRequest, "A worker's id may have %d bytes", rest.MaxWorkerText)
	}
	token, now := newToken(), s.config.Now()
	t := store.WorkerToken{
		Token: hashToken(token), UserID: u.ID, WorkerID: worker, Seconds: in.Seconds,
		Expires: store.Time{Time: now.Add(time.Duration(in.Seconds) * time.Second)}, Latest: store.Time{Time: now.Add(longestWorkerToken)},
	}
	boundWorkerToken(&t, u.Program)
	err := s.config.Store.AddWorkerToken(r.Context(), t, now, maxWorkerTokens)
	return answerWorkerToken(w, token, t, now, err)
}

// boundWorkerToken bounds a worker token by the program token that makes it; a login sets no bound.
func boundWorkerToken(t *store.WorkerToken, maker store.ProgramToken) {
	if maker.ID == "" {
		return
	}
	t.MadeBy = &maker.ID
	for _, end := range []*store.Time{&t.Expires, &t.Latest} {
		if !maker.Expires.IsZero() && maker.Expires.Before(end.Time) {
			*end = maker.Expires
		}
	}
}

// renewWorkerToken gives out another token for the worker of the request's token.
func (s *SignIns) renewWorkerToken(w http.ResponseWriter, r *http.Request, in codalab.WorkerTokenRequest) error {
	if in.Seconds != 0 {
		return rest.Refuse(http.StatusBadRequest, "A renewed token is valid for as long as the one before: leave out seconds")
	}
	token, now := newToken(), s.config.Now()
	t, err := s.config.Store.RenewWorkerToken(r.Context(), hashToken(bearer(r)), hashToken(token), now, maxWorkerTokens)
	switch {
	case errors.Is(err, store.ErrNotFound): // since the request was authenticated
		return notAuthenticated()
	case errors.Is(err, store.ErrReplaced):
		return rest.ReplacedWorker(r.PathValue("worker"))
	}
	return answerWorkerToken(w, token, t, now, err)
}

// answerWorkerToken answers with a token that the store has, unless err says that it has not.
func answerWorkerToken(w http.ResponseWriter, token string, t store.WorkerToken, now time.Time, err error) error {
	if errors.Is(err, store.ErrTooMany) {
		return rest.Refuse(http.StatusForbidden, "You have %d worker tokens already. Revoke those that you do not need.", maxWorkerTokens)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return rest.WriteJSON(w, http.StatusOK, codalab.TokenAnswer{
		Access: token, Type: "Bearer", Scope: "worker",
		Seconds: t.Expires.Sub(now).Seconds(), LatestSeconds: t.Latest.Sub(now).Seconds(),
	})
}

// endWorkerTokens ends all tokens of one worker of the user, also those that the worker has renewed. A worker can
// have ended before, or have no token: that is no error.
func (s *SignIns) endWorkerTokens(w http.ResponseWriter, r *http.Request, u store.User) error {
	if err := s.config.Store.DeleteWorkerTokens(r.Context(), u.ID, r.PathValue("worker")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
