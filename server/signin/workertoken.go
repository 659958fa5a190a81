package signin

import (
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Bounds of worker tokens.
const (
	// longestWorkerToken is enough for a job of 30 days and its time in the queue.
	longestWorkerToken = 35 * 24 * time.Hour
	maxWorkerTokens    = 10_000 // of one user
)

// addWorkerToken gives out a token for one worker of the user. With it the worker can check in, claim its
// runs, answer reads, read the inputs of its runs and write their results, and nothing else. CodaLab's own
// server has no such route.
func (s *SignIns) addWorkerToken(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in codalab.WorkerTokenRequest
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	worker, longest := r.PathValue("worker"), int64(longestWorkerToken/time.Second)
	switch {
	case in.Seconds < 1 || in.Seconds > longest:
		return rest.Refuse(http.StatusBadRequest, "A worker token is valid for 1 to %d seconds", longest)
	case len(worker) > rest.MaxWorkerText:
		return rest.Refuse(http.StatusBadRequest, "A worker's id may have %d bytes", rest.MaxWorkerText)
	}
	token, now := rand.Text()+rand.Text(), s.config.Now()
	err := s.config.Store.AddWorkerToken(r.Context(), store.WorkerToken{
		Token: hashToken(token), UserID: u.ID, WorkerID: worker, Expires: store.Time{Time: now.Add(time.Duration(in.Seconds) * time.Second)},
	}, now, maxWorkerTokens)
	if errors.Is(err, store.ErrTooMany) {
		return rest.Refuse(http.StatusForbidden, "You have %d worker tokens already. Revoke those that you do not need.", maxWorkerTokens)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return rest.WriteJSON(w, http.StatusOK, codalab.TokenAnswer{Access: token, Type: "Bearer", Seconds: float64(in.Seconds), Scope: "worker"})
}
