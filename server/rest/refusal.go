package rest

import (
	"errors"
	"fmt"
	"html"
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
// HTML. This one does so for CodaLab's web page alone (ofPage), since they repeat text of the client.
func AnswerError(to *slog.Logger, w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	var no *RefusalError
	if !errors.As(err, &no) {
		failures.Log(r.Context(), to, r.Method+" "+r.URL.Path, err)
		no = refusal(err)
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if no.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(no.RetryAfter/time.Second)))
	}
	text := no.Message
	if ofPage(r) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		text = "<!DOCTYPE html><title>" + strconv.Itoa(no.Status) + "</title><pre>" + html.EscapeString(text) + "</pre>"
	} else {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(no.Status)
	if _, err := io.WriteString(w, text); err != nil {
		to.LogAttrs(r.Context(), slog.LevelDebug, "the client did not take the answer", slog.String("error", err.Error()))
	}
}

// PageCookie is the name of CodaLab's own cookie (codalab/server/cookie.py: LoginCookie).
const PageCookie = "codalab_session"

// ofPage reports whether CodaLab's web page has sent a request: it has the page's cookie, or for a reader who has not signed in
// what a browser and the page's library (axios) tell of themselves, and not the header that cl sends.
// The page shows the first element pre of a refusal (frontend/src/util/worksheet_utils.js: parseError), and fails if there is
// none. CodaLab's own server answers so without that header (codalab/server/rest_server.py: error_handler).
func ofPage(r *http.Request) bool {
	_, err := r.Cookie(PageCookie)
	reader := r.Header.Get("Sec-Fetch-Site") == "same-origin" && r.Header.Get("Accept") == "application/json, text/plain, */*"
	return (err == nil || reader) && r.Header.Get("X-Requested-With") == ""
}
