package source

import (
	"context"
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Opened is a resolved image that can be read, wherever it lies. It may be used by
// several goroutines at once, until it is closed or the context that it was
// opened with ends.
type Opened struct {
	// Manifest is the image's, RawManifest what it was read from, which Digest is
	// that of, and MediaType what kind of manifest it is.
	Manifest    *v1.Manifest
	RawManifest []byte
	Digest      v1.Hash
	MediaType   types.MediaType
	// Config is the image's configuration, and RawConfig what it was read from,
	// checked against the digest that the manifest has.
	Config    *v1.ConfigFile
	RawConfig []byte

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
	o, err := openImage(ctx, s, img.Digest)
	if err != nil {
		s.close()
		return nil, err
	}
	return o, nil
}

func openImage(ctx context.Context, s store, digest string) (*Opened, error) {
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
	o := &Opened{RawManifest: m.raw, Digest: m.digest, MediaType: m.mediaType, store: s}
	if o.Manifest, err = m.image(); err != nil {
		return nil, err
	}
	if o.RawConfig, o.Config, err = readConfigBlob(ctx, s, m); err != nil {
		return nil, err
	}
	return o, nil
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
