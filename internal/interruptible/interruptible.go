// Package interruptible ends the reading of a stream with a context.
package interruptible

import (
	"context"
	"io"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Reader returns a reader of r that fails with ctx.Err() once ctx has ended. It does not interrupt a Read of r
// that has begun: see Pipe. The reader has no other methods of r, such as WriteTo, which would not check ctx.
func Reader(ctx context.Context, r io.Reader) io.Reader { return reader{ctx, r} }

type reader struct {
	ctx context.Context //nolint:containedctx // of one stream
	r   io.Reader
}

func (i reader) Read(b []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(b)
}

// Pipe returns a stream of r, for a terminal or a pipe that may stay quiet for ever. A Read of the stream that
// has begun fails with ctx.Err() when ctx ends, and with io.ErrClosedPipe at Close. Uploads need this, because
// net/http waits for a Read of a request's body (net/http: persistConn.mapRoundTripError).
//
// A goroutine reads r until r or the stream ends. If the stream ends first, the goroutine's pending Read of r
// continues, and its bytes are lost.
func Pipe(ctx context.Context, r io.Reader) io.ReadCloser {
	out, in := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) })
	background.Detach(func() { // returns when r or the stream ends
		defer stop()
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err)
	})
	return out
}
