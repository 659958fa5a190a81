package apptainer

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// resumedFrom is the least size of an answer that is worth going on with;
	// smaller ones are asked for again.
	resumedFrom = 1 << 20
	// resumes is how often in a row one is gone on with that brings nothing.
	resumes = 3
)

// resuming goes on with a large answer whose connection broke, where it broke
// (RFC 9110, 14.2). That all of it is right is for its reader to check, who
// knows its digest.
type resuming struct {
	http.RoundTripper

	delay time.Duration // before it goes on
}

// RoundTrip makes a request.
func (r resuming) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err == nil && req.Method == http.MethodGet && resp.StatusCode == http.StatusOK && resp.ContentLength >= resumedFrom && req.Header.Get("Range") == "" {
		resp.Body = &resumedBody{ReadCloser: resp.Body, from: r, request: req, size: resp.ContentLength}
	}
	return resp, err //nolint:wrapcheck // a transport's errors go through as they are
}

// resumedBody is the body of an answer of a known size. It is read by one
// goroutine.
type resumedBody struct {
	io.ReadCloser

	from    resuming
	request *http.Request
	size    int64
	read    int64
	idle    int // how often in a row it was gone on with for nothing
}

func (b *resumedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if n > 0 {
		b.idle = 0
	}
	if err == nil || b.read >= b.size || b.request.Context().Err() != nil {
		return n, err //nolint:wrapcheck // a reader passes its errors on
	}
	if n == 0 && !b.resume() {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	return n, nil // what broke shows again at the next reading
}

// resume asks for the rest, and says whether it comes.
func (b *resumedBody) resume() bool {
	for b.idle < resumes {
		b.idle++
		timer := time.NewTimer(b.from.delay)
		select {
		case <-b.request.Context().Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
		rest := b.request.Clone(b.request.Context())
		rest.Header.Set("Range", fmt.Sprintf("bytes=%d-", b.read))
		resp, err := b.from.RoundTripper.RoundTrip(rest)
		if err != nil {
			continue
		}
		want := fmt.Sprintf("bytes %d-%d/%d", b.read, b.size-1, b.size)
		if resp.StatusCode == http.StatusPartialContent && resp.Header.Get("Content-Range") == want {
			_ = b.Close() // it is broken
			b.ReadCloser = resp.Body
			return true
		}
		_ = resp.Body.Close() // not what was asked for
		if resp.StatusCode < http.StatusInternalServerError {
			return false
		}
	}
	return false
}
