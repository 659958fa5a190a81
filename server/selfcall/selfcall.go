// Package selfcall sends the requests of a client to a handler in the same process, as the client that has sent another
// request: web pages and their command lines call the REST API, and need no permissions of their own.
package selfcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// address is the server's in such requests. Nobody looks the name up.
const address = "http://cl-server.invalid"

// errTooMuch is the error of an answer with more bytes than Transport.Most.
var errTooMuch = errors.New("the answer is too large")

// Transport is an http.RoundTripper. It is safe for concurrent use.
type Transport struct {
	Handler http.Handler
	// From is the request in whose name the others are sent: with the token or the cookie of its user, its client's
	// address, and all by which the server knows a browser's own request from one of another site's page.
	From *http.Request
	// Log gets the panics of the handler.
	Log *slog.Logger
	// Most bounds the bytes of an answer; 0 for no bound.
	Most int64
}

// Client returns a client of the handler.
func (t Transport) Client() (*client.Client, error) {
	return client.New(address, client.Options{HTTP: &http.Client{Transport: t}})
}

// proofs are the headers of From that requests have. Behind a proxy the server takes the client's address and encryption
// from the last two.
func proofs() []string {
	return []string{"Authorization", "Cookie", "Origin", "Sec-Fetch-Site", "User-Agent", "X-Forwarded-For", "X-Forwarded-Proto"}
}

// RoundTrip serves a request. The answer's body is that of a connection: the handler waits for its reader, and ends when it
// is closed. Its end comes after the handler's.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	in.Host, in.RemoteAddr, in.TLS, in.RequestURI = t.From.Host, t.From.RemoteAddr, t.From.TLS, r.URL.RequestURI()
	for _, name := range proofs() {
		in.Header.Del(name)
		if values := t.From.Header.Values(name); len(values) > 0 {
			in.Header[name] = values
		}
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	body, to := io.Pipe()
	w := &answer{header: http.Header{}, to: to, began: make(chan struct{}), most: t.Most}
	background.Detach(func() { // the handler ends with its answer, or when its reader has closed it
		defer cancel()
		defer func() { _ = in.Body.Close() }() // as a RoundTripper must
		w.end(t.serve(ctx, w, in))
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
		Header: w.sent, ContentLength: -1, Body: &answerBody{body, cancel}, Request: r,
	}, nil
}

// serve calls the handler. One that panics, as to break its answer off, returns an error.
func (t Transport) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the answer broke off: %v", p)
			if p != http.ErrAbortHandler { //nolint:errorlint // as package net/http compares it
				t.Log.LogAttrs(ctx, slog.LevelError, "panic", slog.String("doing", r.Method+" "+r.URL.Path), slog.Any("error", err), slog.String("stack", string(debug.Stack())))
			}
		}
	}()
	t.Handler.ServeHTTP(w, r)
	return nil
}

// answerBody ends the handler when it is closed.
type answerBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends the handler.
func (b *answerBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// answer is the http.ResponseWriter of a request.
type answer struct {
	header http.Header
	once   sync.Once
	// began is closed once status and sent are set.
	began  chan struct{}
	status int
	sent   http.Header
	to     *io.PipeWriter
	// written counts the bytes, of which there may be most; 0 for any number.
	written, most int64
}

// Header returns the header.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	if status < http.StatusOK {
		return // an interim answer
	}
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.began)
	})
}

// Write writes on. It fails once the answer is too large, or its reader has gone.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.written += int64(len(b)); a.most > 0 && a.written > a.most {
		_ = a.to.CloseWithError(errTooMuch) // never fails
		return 0, errTooMuch
	}
	return a.to.Write(b)
}

// Flush does nothing: the reader gets each write at once.
func (a *answer) Flush() {}

func (a *answer) end(err error) {
	a.WriteHeader(http.StatusOK)
	_ = a.to.CloseWithError(err) // never fails
}
