package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// RefusalError is an error for the client: an HTTP status and one sentence, which CodaLab's clients
// show unchanged.
type RefusalError struct {
	Status  int
	Message string
	// RetryAfter is the time after which the same request may succeed; 0 if the answer does not tell one.
	RetryAfter time.Duration
}

func (r *RefusalError) Error() string { return r.Message }

// Refuse returns a RefusalError.
func Refuse(status int, format string, args ...any) error {
	return &RefusalError{Status: status, Message: fmt.Sprintf(format, args...)}
}

// HasStatus reports whether err is a RefusalError with this status.
func HasStatus(err error, status int) bool {
	var no *RefusalError
	return errors.As(err, &no) && no.Status == status
}

// Failures logs errors that no caller gets, and answers requests that fail.
type Failures struct{ log *slog.Logger }

// FailuresTo returns Failures with a log.
func FailuresTo(log *slog.Logger) Failures { return Failures{log} }

// LogError logs an error, unless it is nil or ctx has ended.
func (f Failures) LogError(ctx context.Context, doing string, err error) {
	if err != nil && ctx.Err() == nil {
		f.log.LogAttrs(ctx, slog.LevelError, "failed", slog.String("doing", doing), slog.String("error", err.Error()))
	}
}

// refusal returns the RefusalError that a client gets for an error. It logs an error that a client cannot mend.
func (f Failures) refusal(r *http.Request, err error) *RefusalError {
	var no *RefusalError
	switch {
	case errors.As(err, &no):
		return no
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, sqldb.ErrFull):
		f.LogError(r.Context(), r.Method+" "+r.URL.Path, err)
		return &RefusalError{Status: http.StatusInternalServerError, Message: "The server's disk is full."}
	case errors.Is(err, sqldb.ErrUnavailable), errors.Is(err, sqldb.ErrInDoubt):
		f.LogError(r.Context(), r.Method+" "+r.URL.Path, err)
		return &RefusalError{Status: http.StatusServiceUnavailable, Message: "The server's database does not answer. Try again later."}
	}
	f.LogError(r.Context(), r.Method+" "+r.URL.Path, err)
	return &RefusalError{Status: http.StatusInternalServerError, Message: "Unexpected Internal Error (see the server's log)."}
}

// AnswerError answers a request that failed with err; nil means that the handler has answered. CodaLab's
// own server labels its messages as HTML. This one does not, since they repeat text of the client.
func (f Failures) AnswerError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	no := f.refusal(r, err)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if no.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(no.RetryAfter/time.Second)))
	}
	w.WriteHeader(no.Status)
	if _, err := io.WriteString(w, no.Message); err != nil {
		f.log.LogAttrs(r.Context(), slog.LevelDebug, "answer not delivered", slog.String("error", err.Error()))
	}
}
