package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// response is a registry's response. Its receiver closes it.
type response struct {
	*http.Response

	from   *endpoint
	ctx    context.Context //nolint:containedctx // the request's, for the cause of its end
	cancel context.CancelCauseFunc
	paced  io.Reader

	// received counts the bytes since waited was zero, and waited is the time for which reading
	// them has blocked.
	stall    time.Duration
	received int64
	waited   time.Duration
}

// minRate is the least average rate of a registry over Source.Stall, in bytes a second. It is dnf's
// (dnf.conf(5): minrate), and brings a layer of 3.6 MB in an hour. A useful link is faster, even if
// pulls share its rate. A slower registry could hold a pull for ever, while others wait for their
// turn.
const minRate = 1000

// Read reads the body at the pace of Source.Reader.
func (r *response) Read(p []byte) (int, error) { return r.paced.Read(p) }

// receive reads data from the registry, and fails if that is silent or slow for too long. Only the
// time for which reading blocks counts.
func (r *response) receive(p []byte) (int, error) {
	began := time.Now() //nolint:forbidigo // measures the time for which reading blocks
	timer := time.AfterFunc(r.stall-r.waited, func() { r.cancel(errStalled) })
	defer timer.Stop()
	n, err := r.Body.Read(p)
	r.received += int64(n)
	if err != nil && err != io.EOF && errors.Is(context.Cause(r.ctx), errStalled) {
		return n, stalled{bytes: r.received, in: r.stall}
	}
	r.waited += time.Since(began) //nolint:forbidigo // as above
	if r.received >= int64(minRate*r.stall.Seconds()) {
		r.received, r.waited = 0, 0
	}
	return n, err
}

// Close ends the request. It may be called while another goroutine reads.
func (r *response) Close() error {
	r.cancel(nil)
	return r.Body.Close()
}

// readAll reads a body of at most limit bytes within Source.Stall.
func (r *response) readAll(limit int64) ([]byte, error) {
	timer := time.AfterFunc(r.stall, func() { r.cancel(errStalled) })
	defer timer.Stop()
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, plainError{text: fmt.Sprintf("its manifest is of more than %d bytes", limit)}
	}
	return data, nil
}

// errStalled is the cause when a registry does not answer, or stops sending.
var errStalled = errors.New("it has stopped sending")

// stalled is errStalled with the last amount of data from the registry.
type stalled struct {
	bytes int64
	in    time.Duration
}

func (s stalled) Error() string { return fmt.Sprintf("it has sent %d bytes in %s", s.bytes, s.in) }

// Is makes errors.Is find errStalled.
func (stalled) Is(target error) bool { return target == errStalled }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
