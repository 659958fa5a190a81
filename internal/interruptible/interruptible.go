// Package interruptible ends the reading of a stream with a context.
package interruptible

import (
	"context"
	"io"
)

// Reader returns a reader of r that fails with ctx.Err() once ctx has ended. A Read of r that
// has begun is not interrupted. The reader has no other methods of r's, such as WriteTo, which
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
