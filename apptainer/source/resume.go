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
)

const (
	// resumes is how often in a row a blob is gone on with that brings less
	// than resumedAfter.
	resumes      = 3
	resumedAfter = 64 << 10
)

// blobReader reads a blob of a registry, and goes on where a connection broke
// (RFC 9110, 14.2). A blob is named by its digest, which its reader checks, so
// no ETag has to say that it is still the same.
type blobReader struct {
	ctx    context.Context //nolint:containedctx // what Opened.Blob was given
	cancel context.CancelFunc
	store  *remoteStore
	blob   v1.Descriptor

	mu    sync.Mutex
	body  *answer
	at    int64 // the next byte
	since int64 // where the body began
	idle  int   // how many bodies in a row brought nothing
}

// Read reads on, over broken connections.
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
			return n, nil // what broke shows again at the next reading
		}
		if err := b.resume(err); err != nil {
			return 0, err
		}
	}
}

// Close ends the reading, in another goroutine too.
func (b *blobReader) Close() error {
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.body.Close()
}

// resume opens the rest after a body broke.
func (b *blobReader) resume(broke error) error {
	_ = b.body.Close()
	if b.ctx.Err() != nil { // its connection has other words for it
		return b.ctx.Err()
	}
	if errors.Is(broke, io.EOF) {
		broke = io.ErrUnexpectedEOF
	}
	from := b.body.from
	if errors.Is(broke, errStalled) {
		from.down.Store(from.mirror) // others are asked first
	}
	err := from.worded(broke)
	for {
		if b.idle++; b.at-b.since >= resumedAfter {
			b.idle = 0
		}
		b.since = b.at
		var said sentence
		if b.idle > resumes || errors.As(err, &said) && !said.transient {
			return err
		}
		if err := pause(b.ctx, b.store.delay); err != nil {
			return err
		}
		if err = b.open(); err == nil {
			return nil
		}
	}
}

// open asks for what has not been read, wherever it may be had.
func (b *blobReader) open() error {
	what := "blobs/" + b.blob.Digest.String()
	whole := http.Header{"Accept-Encoding": {"identity"}}
	rest := whole.Clone()
	if b.at > 0 {
		rest.Set("Range", fmt.Sprintf("bytes=%d-%d", b.at, b.blob.Size-1))
	}
	return b.store.each(b.ctx, func(p *place) error {
		body, err := p.get(b.ctx, http.MethodGet, what, rest)
		if refused := asRefusal(err); refused != nil && refused.status == http.StatusRequestedRangeNotSatisfiable {
			body, err = p.get(b.ctx, http.MethodGet, what, whole)
		}
		if err != nil {
			return err
		}
		if err := b.skip(body); err != nil {
			_ = body.Close()
			return p.worded(err)
		}
		b.body = body
		return nil
	})
}

// skip brings a body to where the reader is.
func (b *blobReader) skip(body *answer) error {
	if body.StatusCode == http.StatusPartialContent {
		sent := body.Header.Get("Content-Range")
		if !strings.HasPrefix(sent, fmt.Sprintf("bytes %d-", b.at)) {
			return sentence{text: fmt.Sprintf("the registry sent %q of a layer when it was asked for what follows byte %d", sent, b.at)}
		}
		return nil
	}
	if body.ContentLength >= 0 && body.ContentLength != b.blob.Size {
		return sentence{text: fmt.Sprintf("the registry has %d bytes of it, not %d as its manifest says", body.ContentLength, b.blob.Size)}
	}
	_, err := io.CopyN(io.Discard, body, b.at)
	return err
}
