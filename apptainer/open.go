package apptainer

import (
	"context"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// opened is a resolved image that can be read, wherever it lies. Its manifest
// is checked against the image's digest, its configuration is read when it is
// asked for, and bounded. It may be used by several goroutines at once, until
// it is closed or the context that it was opened with ends.
type opened struct {
	v1.Image

	hangUp func()
}

// open opens an image of any kind that has layers. Whoever gets it closes it.
func (r Registry) open(ctx context.Context, img Image) (*opened, error) {
	ref, err := img.Reference.pinned(img.Digest)
	if err != nil {
		return nil, err
	}
	options, hangUp := r.options(ctx)
	image, err := remote.Image(ref, options...)
	if err != nil {
		hangUp()
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return &opened{Image: image, hangUp: hangUp}, nil
}

// close lets go of connections and files. Readers of blobs are closed by those
// who got them.
func (o *opened) close() { o.hangUp() }

// blob opens a blob of the image at offset bytes from its begin, which is at
// most its size: the reader gives the size-offset bytes that follow, then
// io.EOF. What the manifest says of the blob is given by its caller, who also
// checks the digest of the whole: here nothing is verified but the length.
//
// A connection that breaks, or is silent for longer than Registry.Stall, is
// made again where it broke, by asking the registry itself: a redirection's
// signature may have ended in the meantime. When that brings nothing, three
// times in a row, the error is the last one's. The reader ends with ctx, and
// is for one goroutine.
func (o *opened) blob(_ context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error) {
	layer, err := o.LayerByDigest(blob.Digest)
	if err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	if _, err := io.CopyN(io.Discard, body, offset); err != nil {
		_ = body.Close()
		return nil, fmt.Errorf("pull: %w", err)
	}
	return body, nil
}
