package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// watched remembers the status of an answer.
type watched struct {
	http.ResponseWriter
	status int
	// answering is called when an answer begins; nil for nothing to do.
	answering func()
	// over returns an error once the answer must not go on; nil for never.
	over func() error
}

// WriteHeader passes on the status.
func (w *watched) WriteHeader(status int) {
	w.status = status
	if w.answering != nil {
		w.answering()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write fails once the answer must not go on.
func (w *watched) Write(p []byte) (int, error) {
	if w.over != nil {
		if err := w.over(); err != nil {
			return 0, err
		}
	}
	return w.ResponseWriter.Write(p) //nolint:wrapcheck // as an io.Writer must
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve serves a route. One that changes something waits for its user's turn, so that one user with
// many requests does not keep others from the database, which has one writer. The turn begins when the
// request's body is there, and ends with the answer's first byte, so that slow clients keep no place.
func (s *Server) serve(one rest.Route, w *watched, r *http.Request, u store.User) error {
	if !one.Changes() || one.Waits {
		return one.Serve(w, r, u)
	}
	body, err := rest.ReadBody(w, r)
	if err != nil {
		return err
	}
	if w.answering, err = s.takeTurn(r.Context(), u); err != nil {
		return err
	}
	defer w.answering()
	r = r.WithContext(r.Context()) // the caller drains the body of its own request
	r.Body = io.NopCloser(bytes.NewReader(body))
	return one.Serve(w, r, u)
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

// audited is what an audit line tells of a request besides its user.
type audited struct {
	objects []string      // that the request names
	did     []store.Event // what it has changed
	more    int           // the number of further changes
	status  int
}

// audit writes a line about a request that may have changed something. It leaves out the query, in
// which an upload's URL may have a password.
func (s *Server) audit(r *http.Request, u store.User, a audited) {
	attributes := []slog.Attr{
		slog.String("user", u.Name), slog.String("user_id", u.ID), slog.String("address", rest.ClientAddress(r, s.BehindProxy)),
		slog.String("request", r.Method+" "+r.URL.Path), slog.Any("objects", a.objects),
	}
	if len(a.did) > 0 {
		attributes = append(attributes, slog.Any("did", a.did))
	}
	if a.more > 0 {
		attributes = append(attributes, slog.Int("did_more", a.more))
	}
	attributes = append(attributes, slog.Int("status", a.status))
	if u.OnlyWorker != "" {
		attributes = append(attributes, slog.String("token_of_worker", u.OnlyWorker))
	}
	if u.Program.ID != "" {
		attributes = append(attributes, slog.String("program_token", u.Program.ID))
	}
	s.Log.LogAttrs(r.Context(), slog.LevelInfo, "audit", attributes...)
	s.auditFile.write(r.Context(), s.Now(), attributes)
}

// auditOwn writes a line about what the server has done by itself.
func (s *Server) auditOwn(did []store.Event) {
	ctx := context.Background() // the line is written, whether or not a request goes on
	objects := make([]string, len(did))
	for i, e := range did {
		objects[i] = e.UUID
	}
	attributes := []slog.Attr{slog.Bool("by_server", true), slog.Any("objects", objects), slog.Any("did", did)}
	s.Log.LogAttrs(ctx, slog.LevelInfo, "audit", attributes...)
	s.auditFile.write(ctx, s.Now(), attributes)
}

// auditFile writes audit lines as JSON to a file or another writer. If that fails, as on a full disk, the server goes on:
// the lines are in its log, too. It tells the begin and the end of such a time in the log, and counts the lost lines.
type auditFile struct {
	lines slog.Handler // nil for nobody
	log   *slog.Logger
	lost  prometheus.Counter

	mu      sync.Mutex
	missing int // lines since the last one that was written
}

func newAuditFile(to io.Writer, log *slog.Logger, lost prometheus.Counter) *auditFile {
	a := &auditFile{log: log, lost: lost}
	if to != nil {
		a.lines = slog.NewJSONHandler(to, nil)
	}
	return a
}

func (a *auditFile) write(ctx context.Context, now time.Time, attributes []slog.Attr) {
	if a.lines == nil {
		return
	}
	line := slog.NewRecord(now.UTC(), slog.LevelInfo, "audit", 0)
	line.AddAttrs(attributes...)
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.lines.Handle(ctx, line)
	switch {
	case err != nil:
		a.lost.Inc()
		if a.missing++; a.missing == 1 {
			a.log.LogAttrs(ctx, slog.LevelError, "audit lines cannot be written to the audit file; they are in this log", slog.String("error", err.Error()))
		}
	case a.missing > 0:
		a.log.LogAttrs(ctx, slog.LevelWarn, "audit lines are written again; some are missing in the audit file", slog.Int("missing", a.missing))
		a.missing = 0
	}
}
