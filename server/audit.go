package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// watched remembers the status of an answer.
type watched struct {
	http.ResponseWriter
	status int
	// answering is called when an answer begins; nil for nothing to do.
	answering func()
}

// WriteHeader passes on the status.
func (w *watched) WriteHeader(status int) {
	w.status = status
	if w.answering != nil {
		w.answering()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// changes reports whether a route changes what users have, so that its requests are in the audit log.
// Those of workers and the parts of an upload are not: there are too many, and what they did stands in
// the bundles. Nor are those to containers, which change nothing here.
func (one route) changes() bool {
	method, path, _ := strings.Cut(one.pattern, " ")
	switch {
	case method == http.MethodGet, path == "/user/increment_disk_used":
		return false
	case path == workerTokenPath:
		return true
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
// many requests does not keep others from the database, which has one writer. The turn begins when the
// request's body is there, and ends with the answer's first byte, so that slow clients keep no place.
func (s *Server) serve(one route, w *watched, r *http.Request, u store.User) error {
	if !one.changes() || one.waits {
		return one.serve(w, r, u)
	}
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	if w.answering, err = s.takeTurn(r.Context(), u); err != nil {
		return err
	}
	defer w.answering()
	r = r.WithContext(r.Context()) // the caller drains the body of its own request
	r.Body = io.NopCloser(bytes.NewReader(body))
	return one.serve(w, r, u)
}

// takeTurn waits for a user's turn to change something, and returns the function that ends it, which
// may be called again.
func (s *Server) takeTurn(ctx context.Context, u store.User) (leave func(), err error) {
	leave, err = s.writes.Take(ctx, turns.Party{Owner: u.ID})
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(leave), nil
}

// audit writes a line about a request that may have changed something. It leaves out the query, in
// which an upload's URL may have a password.
func (s *Server) audit(r *http.Request, u store.User, objects []string, status int) {
	s.Log.LogAttrs(r.Context(), slog.LevelInfo, "audit",
		slog.String("user", u.Name), slog.String("user_id", u.ID), slog.String("address", s.clientAddress(r)),
		slog.String("request", r.Method+" "+r.URL.Path), slog.Any("objects", objects), slog.Int("status", status))
}
