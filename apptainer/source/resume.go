package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

const (
	// maxIdleResumes limits the resumptions of a blob in a row whose bodies each have fewer than
	// minProgress bytes.
	maxIdleResumes = 3
	minProgress    = 64 << 10
)

// blobReader reads a blob of a registry, and resumes after a broken connection (RFC 9110, 14.2). It
// needs no ETag, because a blob is named by its digest, which the caller checks.
type blobReader struct {
	ctx    context.Context //nolint:containedctx // of Opened.Blob
	cancel context.CancelFunc
	store  *remoteStore
	blob   v1.Descriptor

	mu    sync.Mutex
	body  *response
	at    int64 // the next byte
	since int64 // the first byte of the body
	idle  int   // the bodies in a row without progress
}

// Read continues over broken connections.
func (b *blobReader) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.at == b.blob.Size {
			return 0, io.EOF
		}
		n, err := b.body.Read(p[:min(int64(len(p)), b.blob.Size-b.at)])
		b.at += int64(n)
		if n > 0 || err == nil {
			return n, nil // the next Read gets the error again
		}
		if err := b.resume(err); err != nil {
			return 0, err
		}
	}
}

// Close ends the reading. Another goroutine may be in Read.
func (b *blobReader) Close() error {
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.body.Close()
}

func (b *blobReader) resume(broke error) error {
	_ = b.body.Close()
	if b.ctx.Err() != nil { // broke may describe it otherwise
		return b.ctx.Err()
	}
	if errors.Is(broke, io.EOF) {
		broke = io.ErrUnexpectedEOF
	}
	from := b.body.from
	if errors.Is(broke, errStalled) {
		from.down.Store(from.mirror)
	}
	err := from.explain(broke)
	for {
		if b.idle++; b.at-b.since >= minProgress {
			b.idle = 0
		}
		b.since = b.at
		var worded plainError
		if b.idle > maxIdleResumes || errors.As(err, &worded) && !worded.transient {
			return err
		}
		if err := pause.For(b.ctx, b.store.delay); err != nil {
			return err
		}
		if err = b.open(); err == nil {
			return nil
		}
	}
}

// open requests the unread rest from any endpoint.
func (b *blobReader) open() error {
	path := "blobs/" + b.blob.Digest.String()
	whole := http.Header{"Accept-Encoding": {"identity"}}
	rest := whole.Clone()
	if b.at > 0 {
		rest.Set("Range", fmt.Sprintf("bytes=%d-%d", b.at, b.blob.Size-1))
	}
	return b.store.tryEach(b.ctx, func(e *endpoint) error {
		body, err := e.get(b.ctx, http.MethodGet, path, rest)
		if refused := asRefusal(err); refused != nil && refused.status == http.StatusRequestedRangeNotSatisfiable {
			body, err = e.get(b.ctx, http.MethodGet, path, whole)
		}
		if err != nil {
			return err
		}
		if err := b.skip(body); err != nil {
			_ = body.Close()
			return e.explain(err)
		}
		b.body = body
		return nil
	})
}

// skip skips the bytes of a body that were already read.
func (b *blobReader) skip(body *response) error {
	if body.StatusCode == http.StatusPartialContent {
		sent := body.Header.Get("Content-Range")
		if !strings.HasPrefix(sent, fmt.Sprintf("bytes %d-", b.at)) {
			return plainError{text: fmt.Sprintf("the registry sent %q of a layer when it was asked for the bytes from %d on", sent, b.at)}
		}
		return nil
	}
	if body.ContentLength >= 0 && body.ContentLength != b.blob.Size {
		return plainError{text: fmt.Sprintf("the registry has %d bytes of it, not %d as its manifest says", body.ContentLength, b.blob.Size)}
	}
	_, err := io.CopyN(io.Discard, body, b.at)
	return err
}
