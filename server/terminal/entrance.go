package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// inside is the name of the server in the requests of commands. Nobody looks it up.
const inside = "cl-server.invalid"

// mostAnswer bounds an answer to a command's request in memory, in bytes.
const mostAnswer = 8 << 20

// errTooMuch is the error of an answer that is larger.
var errTooMuch = errors.New("the answer is too large")

// entrance is an http.RoundTripper that enters a handler in memory, with the proof of another request: the token or the cookie
// of its user, and all by which the server knows a browser's own request from one of another site's page.
type entrance struct {
	handler http.Handler
	proof   *http.Request
}

// proofs are the headers of the proof. The server takes the client's address and encryption from the last two behind a proxy.
func proofs() []string {
	return []string{"Authorization", "Cookie", "Origin", "Sec-Fetch-Site", "X-Forwarded-For", "X-Forwarded-Proto"}
}

// RoundTrip serves a request. It returns when the handler has.
func (e *entrance) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	in := r.Clone(r.Context())
	in.Host, in.RemoteAddr, in.TLS, in.RequestURI = e.proof.Host, e.proof.RemoteAddr, e.proof.TLS, r.URL.RequestURI()
	for _, name := range proofs() {
		in.Header.Del(name)
		if values := e.proof.Header.Values(name); len(values) > 0 {
			in.Header[name] = values
		}
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer func() { _ = in.Body.Close() }() // as a RoundTripper must
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	defer func() {
		switch broken := recover(); {
		case broken == nil:
		case broken == any(http.ErrAbortHandler): // the handler breaks its answer off
			resp, err = nil, io.ErrUnexpectedEOF
		default:
			panic(broken)
		}
	}()
	e.handler.ServeHTTP(w, in)
	if err := r.Context().Err(); err != nil {
		return nil, fmt.Errorf("serve command's request: %w", err)
	}
	if w.full {
		return nil, errTooMuch
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(bytes.NewReader(w.body.Bytes())), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// recorder is an http.ResponseWriter in memory.
type recorder struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
	full   bool
}

// Header returns the answer's headers.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader keeps the first status.
func (w *recorder) WriteHeader(status int) {
	if !w.wrote && status >= http.StatusOK {
		w.status, w.wrote = status, true
	}
}

// Write fails when the answer becomes too large.
func (w *recorder) Write(p []byte) (int, error) {
	w.wrote = true
	if w.body.Len()+len(p) > mostAnswer {
		w.full = true
		return 0, errTooMuch
	}
	return w.body.Write(p) //nolint:wrapcheck // it never fails
}
