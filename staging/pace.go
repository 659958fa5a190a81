package staging

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// Pace bounds the bytes per second of all the downloads that share it. It is
// safe for concurrent use; a nil Pace bounds nothing.
type Pace struct {
	limiter *rate.Limiter
	piece   int // the most that is read at a time
}

// NewPace lets so many bytes through in a second, and not much more in any
// moment.
func NewPace(bytesPerSecond int64) *Pace {
	const least, most = 16 << 10, 1 << 20
	piece := int(min(max(bytesPerSecond/20, least), most))
	return &Pace{limiter: rate.NewLimiter(rate.Limit(bytesPerSecond), piece), piece: piece}
}

// Reader is r at the pace, until ctx ends.
func (p *Pace) Reader(ctx context.Context, r io.Reader) io.Reader {
	if p == nil {
		return r
	}
	return readerFunc(func(b []byte) (int, error) {
		n, err := r.Read(b[:min(len(b), p.piece)])
		if n > 0 {
			if waitErr := p.limiter.WaitN(ctx, n); waitErr != nil && err == nil {
				err = waitErr
			}
		}
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
