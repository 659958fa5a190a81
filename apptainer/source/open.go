package source

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Opened is a resolved image that can be read, wherever it lies. Its manifest
// and its configuration are checked against their digests. It may be used by
// several goroutines at once, until it is closed or the context that it was
// opened with ends.
type Opened struct {
	v1.Image

	store store
}

// Open opens an image of any kind that has layers, as Resolve gave it. Whoever
// gets it closes it. Its errors and those of its blobs are the cause alone:
// WrapError puts them in words about the image.
func (src Source) Open(ctx context.Context, img Image) (*Opened, error) {
	if img.Digest == "" {
		return nil, errors.New("it has no layers: it was not resolved, or is a SIF")
	}
	s, err := src.store(ctx, img.Reference)
	if err != nil {
		return nil, err
	}
	image, err := openImage(ctx, s, img.Digest)
	if err != nil {
		s.close()
		return nil, err
	}
	return &Opened{Image: image, store: s}, nil
}

func openImage(ctx context.Context, s store, digest string) (v1.Image, error) {
	m, err := s.manifest(ctx, digest)
	if err != nil {
		return nil, err
	}
	if m.mediaType.IsIndex() {
		return nil, errors.New("it is a list of platforms and not one image")
	}
	if err := checkKind(m); err != nil {
		return nil, err
	}
	config, _, err := readConfigBlob(ctx, s, m)
	if err != nil {
		return nil, err
	}
	image, err := partial.CompressedToImage(&core{ctx: ctx, store: s, manifest: m, config: config})
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return image, nil
}

// IsLocal says whether its blobs lie there, to be read again at no cost.
func (o *Opened) IsLocal() bool {
	local, ok := o.store.(*localStore)
	return ok && local.files.inPlace()
}

// Close lets go of connections and files. Readers of blobs are closed by those
// who got them, before it.
func (o *Opened) Close() { o.store.close() }

// Blob opens a blob of the image at offset bytes from its begin, which is at
// most its size: the reader gives the size-offset bytes that follow, then
// io.EOF, and never fewer. The descriptor is the manifest's; its digest says
// which blob, and whoever has read the whole checks it: here nothing is
// verified but the length.
//
// From a registry, a connection that breaks, or is silent for longer than
// Source.Stall, is made again where it broke, by asking the registry itself:
// a redirection's signature may have ended in the meantime. A registry that
// knows nothing of ranges is read from the begin, up to there. When that brings
// nothing new three times in a row, the error is the last one's. The reader
// ends with ctx, and is for one goroutine.
func (o *Opened) Blob(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error) {
	return openBlob(ctx, o.store, blob, offset)
}

// core is what ggcr makes a v1.Image of.
type core struct {
	ctx      context.Context //nolint:containedctx // v1.Layer.Compressed has no context of its own
	store    store
	manifest manifest
	config   []byte
}

// RawManifest gives the manifest as it was read.
func (c *core) RawManifest() ([]byte, error) { return c.manifest.raw, nil }

// RawConfigFile gives the configuration as it was read.
func (c *core) RawConfigFile() ([]byte, error) { return c.config, nil }

// MediaType is the manifest's.
func (c *core) MediaType() (types.MediaType, error) { return c.manifest.mediaType, nil }

// Manifest gives the manifest.
func (c *core) Manifest() (*v1.Manifest, error) { return c.manifest.image() }

// LayerByDigest gives a layer, or the configuration.
func (c *core) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	d, err := partial.BlobDescriptor(c, h)
	if err != nil {
		return nil, fmt.Errorf("find a layer: %w", err)
	}
	return &coreLayer{core: c, descriptor: *d}, nil
}

// coreLayer is one of its layers.
type coreLayer struct {
	core       *core
	descriptor v1.Descriptor
}

// Digest is the blob's.
func (l *coreLayer) Digest() (v1.Hash, error) { return l.descriptor.Digest, nil }

// Size is the blob's.
func (l *coreLayer) Size() (int64, error) { return l.descriptor.Size, nil }

// MediaType is what the manifest says of it.
func (l *coreLayer) MediaType() (types.MediaType, error) { return l.descriptor.MediaType, nil }

// Descriptor is the manifest's.
func (l *coreLayer) Descriptor() (*v1.Descriptor, error) { return &l.descriptor, nil }

// Compressed gives the blob, whose digest is verified at its end.
func (l *coreLayer) Compressed() (io.ReadCloser, error) {
	blob, err := openBlob(l.core.ctx, l.core.store, l.descriptor, 0)
	if err != nil {
		return nil, err
	}
	sum, err := v1.Hasher(l.descriptor.Digest.Algorithm)
	if err != nil {
		_ = blob.Close()
		return nil, fmt.Errorf("pull: %w", err)
	}
	return &verified{ReadCloser: blob, sum: sum, want: l.descriptor.Digest}, nil
}

// verified is a blob that does not end well unless its digest is right.
type verified struct {
	io.ReadCloser

	sum  hash.Hash
	want v1.Hash
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	_, _ = v.sum.Write(p[:n]) // never fails
	if err == io.EOF {
		if got := hex.EncodeToString(v.sum.Sum(nil)); got != v.want.Hex {
			return n, fmt.Errorf("it is corrupt: it is %s:%s, not %s", v.want.Algorithm, got, v.want)
		}
	}
	return n, err //nolint:wrapcheck // a Reader's error is its own
}
