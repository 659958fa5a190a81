package transfer

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// Pace limits the bytes a second of all downloads that share it. It is safe for concurrent use. A
// nil Pace has no limit.
type Pace struct {
	limiter *rate.Limiter
	piece   int // the largest single read
}

// NewPace returns a Pace of so many bytes a second.
func NewPace(bytesPerSecond int64) *Pace {
	const least, most = 16 << 10, 1 << 20
	piece := int(min(max(bytesPerSecond/20, least), most))
	return &Pace{limiter: rate.NewLimiter(rate.Limit(bytesPerSecond), piece), piece: piece}
}

// Reader returns a reader of r with this pace, until ctx ends.
func (p *Pace) Reader(ctx context.Context, r io.Reader) io.Reader {
	if p == nil {
		return r
	}
	return pacedReader{ctx, r, p}
}

type pacedReader struct {
	ctx context.Context //nolint:containedctx // of one stream
	r   io.Reader
	*Pace
}

func (p pacedReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b[:min(len(b), p.piece)])
	if n > 0 {
		if waitErr := p.limiter.WaitN(p.ctx, n); waitErr != nil && err == nil {
			err = waitErr
		}
	}
	return n, err
}
