package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// watched remembers the status of an answer.
type watched struct {
	http.ResponseWriter
	status int
}

// WriteHeader passes on the status.
func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// changes reports whether a route changes what users have, so that its requests are in the audit log.
// Those of workers and the parts of an upload are not: there are too many, and what they did stands in
// the bundles. Nor are those to containers, which change nothing here.
func (one route) changes() bool {
	method, path, _ := strings.Cut(one.pattern, " ")
	if method == http.MethodGet || path == "/user/increment_disk_used" {
		return false
	}
	for _, part := range []string{"/workers/", "/interpret/", "/netcat/", "/netcurl/"} {
		if strings.Contains(path, part) {
			return false
		}
	}
	return true
}

// objectsKey is the context's key for the objects that a request names.
type objectsKey struct{}

// noteObjects adds the objects that a request names to the audit log's line.
func noteObjects(ctx context.Context, objects []codalab.Object) {
	noted, ok := ctx.Value(objectsKey{}).(*[]string)
	const most, longest = 100, 64
	for _, o := range objects {
		if ok && o.ID != "" && len(*noted) < most {
			*noted = append(*noted, o.ID[:min(len(o.ID), longest)])
		}
	}
}

// serve serves a route. One that changes something waits for its user's turn, so that one user with
// many requests does not keep others from the database, which has one writer. Uploads take no turn:
// they may last for hours, and need the database at their end only.
func (s *Server) serve(one route, w *watched, r *http.Request, u store.User) error {
	if one.changes() && r.Method != http.MethodPut {
		leave, err := s.writes.Take(r.Context(), turns.Party{Owner: u.ID})
		if err != nil {
			return err
		}
		defer leave()
	}
	return one.serve(w, r, u)
}

// audit writes a line about a request that may have changed something. It leaves out the query, in
// which an upload's URL may have a password.
func (s *Server) audit(r *http.Request, u store.User, objects []string, status int) {
	s.Log.LogAttrs(r.Context(), slog.LevelInfo, "audit",
		slog.String("user", u.Name), slog.String("user_id", u.ID), slog.String("address", s.clientAddress(r)),
		slog.String("request", r.Method+" "+r.URL.Path), slog.Any("objects", objects), slog.Int("status", status))
}
