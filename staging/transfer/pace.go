package transfer

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Pace limits the bytes a second of all downloads that share it, and counts their bytes. It is safe for
// concurrent use. A nil Pace has no limit and counts nothing.
type Pace struct {
	limiter *rate.Limiter
	read    atomic.Int64
}

// mostPiece and leastPiece bound a single read.
const leastPiece, mostPiece = 16 << 10, 1 << 20

// NewPace returns a Pace of so many bytes a second; 0 means no limit.
func NewPace(bytesPerSecond int64) *Pace {
	p := &Pace{limiter: rate.NewLimiter(rate.Inf, mostPiece)}
	p.SetLimit(bytesPerSecond)
	return p
}

// SetLimit changes the bytes a second, of the downloads under way too; 0 means no limit.
func (p *Pace) SetLimit(bytesPerSecond int64) {
	if bytesPerSecond == 0 {
		p.limiter.SetBurst(mostPiece)
		p.limiter.SetLimit(rate.Inf)
		return
	}
	p.limiter.SetBurst(int(min(max(bytesPerSecond/20, leastPiece), mostPiece)))
	p.limiter.SetLimit(rate.Limit(bytesPerSecond))
}

// Read returns the bytes that all downloads have read.
func (p *Pace) Read() int64 { return p.read.Load() }

// Reader returns a reader of r with this pace, until ctx ends.
func (p *Pace) Reader(ctx context.Context, r io.Reader) io.Reader {
	if p == nil {
		return r
	}
	return pacedReader{ctx, r, p}
}

type pacedReader struct {
	ctx  context.Context //nolint:containedctx // of one stream
	r    io.Reader
	pace *Pace
}

func (p pacedReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b[:min(len(b), p.pace.limiter.Burst())])
	p.pace.read.Add(int64(n))
	for left := n; left > 0; { // a new limit may allow less at a time
		part := min(left, p.pace.limiter.Burst())
		waitErr := p.pace.limiter.WaitN(p.ctx, part)
		switch {
		case waitErr == nil:
			left -= part
		case p.ctx.Err() != nil:
			return n, fmt.Errorf("wait for the pace of downloads: %w", waitErr)
		}
	}
	return n, err
}
