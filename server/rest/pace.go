package rest

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// PaceStep is the number of bytes that a connection must move within a time, in each direction, while the
// server waits for it. A client that is slower than that holds a goroutine and a connection.
const PaceStep = 64 << 10

// Bounds of Drain. Clients who have not signed in get the smaller ones.
const (
	drainBytes  = 16 << 30
	drainTime   = 10 * time.Minute
	drainBytes0 = 16 << 20
	drainTime0  = 20 * time.Second
	// lastRead is the time for which net/http may read a body that the server has given up.
	lastRead = 5 * time.Second
)

// Paced serves requests whose bodies and answers must keep to the pace: PaceStep bytes within the time every. Package net
// compares deadlines with the machine's clock, so the pace goes by that, and never by the server's (server.Config.Now).
func Paced(next http.Handler, every time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := pace{control: http.NewResponseController(w), every: every}
		p.writeWithin(0) // ends the deadline of the connection's previous request
		body := &pacedBody{ReadCloser: r.Body, pace: p, left: p.every}
		if r.Body != nil && r.Body != http.NoBody {
			r = r.WithContext(r.Context()) // net/http looks at the body of its own request
			r.Body = body
			p.readWithin(p.every)
		}
		next.ServeHTTP(&pacedWriter{ResponseWriter: w, pace: p}, r)
		// net/http sends the rest of its buffer, and reads on to find the next request.
		p.writeWithin(p.every)
		if r.Body == body && !errors.Is(body.ended, io.EOF) {
			p.readWithin(lastRead)
		}
	})
}

// pace sets the deadlines of one connection. Connections that have none, as in tests, do without.
type pace struct {
	control *http.ResponseController
	every   time.Duration // for PaceStep bytes
}

// readWithin sets the deadline for reads; 0 removes it.
func (p pace) readWithin(d time.Duration) { _ = p.control.SetReadDeadline(p.after(d)) }

// writeWithin sets the deadline for writes; 0 removes it.
func (p pace) writeWithin(d time.Duration) { _ = p.control.SetWriteDeadline(p.after(d)) }

func (p pace) after(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return moment().Add(d)
}

// moment is the time of deadlines.
func moment() time.Time { return time.Now() } //nolint:forbidigo // deadlines are moments of the machine's clock

// pacedBody is a request's body. Only the time for which the server waits in Read counts.
type pacedBody struct {
	io.ReadCloser
	pace
	left  time.Duration // until the next step must have come
	step  int           // bytes since the last step
	read  bool          // a Read has begun, so that the client knows that the server wants the body
	ended error
}

// Read fails with os.ErrDeadlineExceeded if the client is too slow.
func (b *pacedBody) Read(p []byte) (int, error) {
	if b.ended != nil {
		return 0, b.ended
	}
	b.read = true
	begun := moment()
	b.readWithin(max(b.left, time.Millisecond))
	n, err := b.ReadCloser.Read(p)
	b.left -= moment().Sub(begun)
	if b.step += n; b.step >= PaceStep {
		b.step, b.left = 0, b.every
	}
	if err != nil {
		b.ended = err
	}
	if errors.Is(err, io.EOF) { // from now on a read only shows whether the client is still there
		b.readWithin(0)
	}
	return n, err
}

// pacedWriter is an answer that must be taken in time.
type pacedWriter struct {
	http.ResponseWriter
	pace
	begun bool // the answer has begun
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the answer.
func (w *pacedWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

// Write writes p in parts, each with a deadline of its own.
func (w *pacedWriter) Write(p []byte) (int, error) {
	w.begun = true
	written := 0
	for {
		part := p[written:min(len(p), written+PaceStep)]
		w.writeWithin(w.every)
		n, err := w.ResponseWriter.Write(part)
		w.writeWithin(0)
		if written += n; err != nil || written >= len(p) {
			return written, err //nolint:wrapcheck // as an io.Writer must
		}
	}
}

// Drain reads the rest of a request's body before its answer is sent, within bounds.
// CodaLab's client reads the answer only after it has sent the whole body, and would see a
// broken connection otherwise. A client that waits for "100 Continue" gets the answer at once. known means
// that the client has signed in.
func Drain(w http.ResponseWriter, r *http.Request, known bool) {
	body, ok := r.Body.(*pacedBody)
	if !ok || body.ended != nil || !body.read && r.Header.Get("Expect") != "" {
		return
	}
	if sent, ok := w.(*pacedWriter); ok && sent.begun {
		return
	}
	left, until := int64(drainBytes), moment().Add(drainTime)
	if !known {
		left, until = drainBytes0, moment().Add(drainTime0)
	}
	buf := make([]byte, 256<<10)
	for left > 0 {
		wait := until.Sub(moment())
		if wait <= 0 {
			return
		}
		body.left = min(body.left, wait)
		n, err := body.Read(buf)
		if err != nil {
			return
		}
		left -= int64(n)
	}
}

// TooSlow reports whether err is that of a body that came too slowly.
func TooSlow(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
