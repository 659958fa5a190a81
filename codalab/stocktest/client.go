package stocktest

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Address is what a Server is called by the users of its Client.
const Address = "http://stock.invalid"

// Client returns a client that calls the server without a network, in a bubble
// of testing/synctest as well. As with a network, the server goes on serving a
// request whose caller has gone.
func (s *Server) Client() *http.Client { return &http.Client{Transport: inProcess{s}} }

type inProcess struct{ server *Server }

// RoundTrip serves a request in a goroutine of its own.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(context.WithoutCancel(r.Context()))
	in.RequestURI = r.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	body, feed := io.Pipe()
	out := &stream{header: http.Header{}, begun: make(chan *http.Response, 1), request: r, body: body, feed: feed}
	broken := make(chan error, 1)
	p.server.requests.Go(func() {
		defer in.Body.Close() //nolint:errcheck // its reader has had what it wanted
		defer func() {
			// http.ErrAbortHandler breaks the connection.
			if why := recover(); why != nil {
				err := fmt.Errorf("the server broke the connection: %v", why)
				broken <- err
				feed.CloseWithError(err)
				return
			}
			out.WriteHeader(http.StatusOK)
			feed.CloseWithError(nil)
		}()
		p.server.ServeHTTP(out, in)
	})
	select {
	case resp := <-out.begun:
		return resp, nil
	case err := <-broken:
		return nil, err
	case <-r.Context().Done():
		_ = body.Close() // nobody reads what comes
		return nil, r.Context().Err()
	}
}

// stream is an answer that is read while it is written.
type stream struct {
	header  http.Header
	begun   chan *http.Response
	request *http.Request
	body    io.ReadCloser
	feed    *io.PipeWriter
	sent    bool
}

// Header returns the header that will be sent.
func (s *stream) Header() http.Header { return s.header }

// WriteHeader sends the header, once.
func (s *stream) WriteHeader(status int) {
	if s.sent {
		return
	}
	s.sent = true
	s.begun <- &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: s.header.Clone(), Body: s.body, ContentLength: -1, Request: s.request,
	}
}

// Write waits until the caller has read it.
func (s *stream) Write(p []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	return s.feed.Write(p) //nolint:wrapcheck // says that the caller has gone
}
