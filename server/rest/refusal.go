package rest

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/server/failures"
)

// statusClientLeft is the status under which nginx counts a request whose client has closed the connection before the
// answer.
const statusClientLeft = 499

// CountedStatus is the status under which a request counts that Paced serves. A failure of the server does not count as
// one if the client has left: most often the client's end was its cause. The answer keeps its status, since a worker whose
// connection only seems to be broken must see that it may try again.
func CountedStatus(r *http.Request, status int) int {
	if status >= http.StatusInternalServerError && clientLeft(r) {
		return statusClientLeft
	}
	return status
}

// clientLeft reports whether the client has closed the connection of a request.
func clientLeft(r *http.Request) bool {
	body, ok := r.Body.(*pacedBody)
	switch {
	case !ok || body.ended == nil || errors.Is(body.ended, io.EOF):
		return r.Context().Err() != nil
	case TooSlow(body.ended):
		return false
	}
	return true
}

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

// refusal returns the RefusalError that a client gets for an error that is none.
func refusal(err error) *RefusalError {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, sqldb.ErrFull):
		return &RefusalError{Status: http.StatusInternalServerError, Message: "The server's disk is full."}
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EIO), errors.Is(err, sqldb.ErrDisk):
		return &RefusalError{Status: http.StatusInternalServerError, Message: "The server's disk fails, or is read-only (see the server's log)."}
	case errors.Is(err, sqldb.ErrUnavailable), errors.Is(err, sqldb.ErrInDoubt):
		return &RefusalError{Status: http.StatusServiceUnavailable, Message: "The server's database does not answer. Try again later."}
	}
	return &RefusalError{Status: http.StatusInternalServerError, Message: "Unexpected Internal Error (see the server's log)."}
}

// AnswerError answers a request that failed with err; nil means that the handler has answered. It logs an
// error that is no RefusalError, because a client cannot mend it. CodaLab's own server labels its messages as
// HTML. This one does not, since they repeat text of the client.
func AnswerError(to *slog.Logger, w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	var no *RefusalError
	if !errors.As(err, &no) {
		failures.Log(r.Context(), to, r.Method+" "+r.URL.Path, err)
		no = refusal(err)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if no.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(no.RetryAfter/time.Second)))
	}
	w.WriteHeader(no.Status)
	if _, err := io.WriteString(w, no.Message); err != nil {
		to.LogAttrs(r.Context(), slog.LevelDebug, "the client did not take the answer", slog.String("error", err.Error()))
	}
}
