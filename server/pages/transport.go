package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// transport sends requests to a handler in this process, in the name of the client that has sent another one.
type transport struct {
	handler http.Handler
	from    *http.Request
	log     *slog.Logger
}

// RoundTrip serves a request. The answer's body is that of a connection: the handler waits for its reader, and ends when it
// is closed.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	inner := r.Clone(ctx)
	inner.RemoteAddr, inner.RequestURI = t.from.RemoteAddr, r.URL.RequestURI()
	inner.Header.Set("User-Agent", t.from.UserAgent())
	if forwarded := t.from.Header.Values("X-Forwarded-For"); len(forwarded) > 0 {
		inner.Header["X-Forwarded-For"] = forwarded
	}
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	body, to := io.Pipe()
	w := &answer{header: http.Header{}, to: to, began: make(chan struct{})}
	background.Detach(func() { // the handler ends with its answer, or when its reader has closed it
		defer cancel()
		w.end(t.serve(ctx, w, inner))
	})
	select {
	case <-w.began:
	case <-r.Context().Done():
		cancel()
		_ = body.Close() // never fails
		return nil, r.Context().Err()
	}
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, ContentLength: -1, Body: &innerBody{body, cancel}, Request: r,
	}, nil
}

// serve calls the handler. One that panics to break its answer off returns an error.
func (t transport) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the answer broke off: %v", p)
			if p != http.ErrAbortHandler { //nolint:errorlint // as package net/http compares it
				t.log.LogAttrs(ctx, slog.LevelError, "panic", slog.String("doing", r.Method+" "+r.URL.Path), slog.Any("error", err), slog.String("stack", string(debug.Stack())))
			}
		}
	}()
	t.handler.ServeHTTP(w, r)
	return nil
}

type innerBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends the handler.
func (b *innerBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// answer is the http.ResponseWriter of an inner request.
type answer struct {
	header http.Header
	once   sync.Once
	// began is closed once status and sent are set.
	began  chan struct{}
	status int
	sent   http.Header
	to     *io.PipeWriter
}

// Header returns the header.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.began)
	})
}

// Write writes on.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	n, err := a.to.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = http.ErrHandlerTimeout // the reader has gone
	}
	return n, err
}

// Flush does nothing: the reader gets each write at once.
func (a *answer) Flush() {}

func (a *answer) end(err error) {
	a.WriteHeader(http.StatusOK)
	_ = a.to.CloseWithError(err) // never fails
}
