// Package interruptible ends the reading of a stream with a context.
package interruptible

import (
	"context"
	"io"
)

// Reader returns a reader of r that fails with ctx.Err() once ctx has ended. A Read of r that
// has begun is not interrupted: Pipe does that. The reader has no other methods of r's, such as WriteTo, which
// would not check ctx.
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

// Pipe returns a stream of r for a terminal or a pipe, which may be quiet for ever: a Read of it that has
// begun fails with ctx.Err() when ctx ends, and with io.ErrClosedPipe at Close. Whoever uploads such a stream
// needs that: net/http waits for a Read of a request's body (net/http: persistConn.mapRoundTripError).
//
// A goroutine reads r until r ends or the stream does. The Read of r in which it is then is not
// interrupted, and what that brings is lost.
func Pipe(ctx context.Context, r io.Reader) io.ReadCloser {
	out, in := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err)
	}()
	return out
}
