package server

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// workerTokenPath is the path of the route that gives out worker tokens.
const workerTokenPath = "/workers/{worker}/token"

// Bounds of worker tokens.
const (
	// longestWorkerToken is enough for a job of 30 days and its time in the queue.
	longestWorkerToken = 35 * 24 * time.Hour
	maxWorkerTokens    = 10_000 // of one user
)

// addWorkerToken gives out a token by which one worker of the user can do what it needs, and nothing else:
// check in, claim its runs, answer reads, read the inputs of its runs and write their results. CodaLab's own
// server has no such route.
func (s *Server) addWorkerToken(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in codalab.WorkerTokenRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	worker, longest := r.PathValue("worker"), int64(longestWorkerToken/time.Second)
	switch {
	case in.Seconds < 1 || in.Seconds > longest:
		return refuse(http.StatusBadRequest, "A worker token is valid for 1 to %d seconds", longest)
	case len(worker) > maxWorkerText:
		return refuse(http.StatusBadRequest, "A worker's id may have %d bytes", maxWorkerText)
	}
	token, now := rand.Text()+rand.Text(), s.Now()
	err := s.Store.AddWorkerToken(r.Context(), store.WorkerToken{
		Token: hashToken(token), UserID: u.ID, WorkerID: worker, Expires: store.Time{Time: now.Add(time.Duration(in.Seconds) * time.Second)},
	}, now, maxWorkerTokens)
	if errors.Is(err, store.ErrTooMany) {
		return refuse(http.StatusForbidden, "You have %d worker tokens already. Revoke those that you do not need.", maxWorkerTokens)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return writeJSON(w, http.StatusOK, codalab.WorkerToken{Token: token, Type: "Bearer", Seconds: in.Seconds, Scope: "worker"})
}

// anyWorker is the user of a worker token without the token's bounds.
func anyWorker(u store.User) store.User {
	u.OnlyWorker = ""
	return u
}

// tokenPermissions returns the permissions of a worker token: those of its user, but at most all on the runs
// that its worker has, and read on their inputs and on the runs that it had at their end.
func (s *Server) tokenPermissions(ctx context.Context, u store.User, bundles []store.Bundle) (map[string]int, error) {
	may, err := s.bundlePermissions(ctx, anyWorker(u), bundles...)
	if err != nil {
		return nil, err
	}
	key := store.Worker{User: u.ID, ID: u.OnlyWorker}
	have := make(map[string]int, len(bundles))
	var others []string
	for _, b := range bundles {
		switch {
		case b.Worker != key:
			have[b.UUID] = store.PermissionNone
			others = append(others, b.UUID)
		case b.State.OnWorker():
			have[b.UUID] = may[b.UUID]
		default:
			have[b.UUID] = min(may[b.UUID], store.PermissionRead)
		}
	}
	inputs, err := s.Store.WorkerInputs(ctx, key, others)
	for _, uuid := range inputs {
		have[uuid] = min(may[uuid], store.PermissionRead)
	}
	return have, err
}
