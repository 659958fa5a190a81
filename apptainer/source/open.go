package source

import (
	"context"
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Opened is a resolved image that can be read. Several goroutines may use it at the same time,
// until it is closed or the context of Open ends.
type Opened struct {
	// Manifest is the image's manifest, parsed from RawManifest. Digest is the digest of
	// RawManifest, and MediaType its media type.
	Manifest    *v1.Manifest
	RawManifest []byte
	Digest      v1.Hash
	MediaType   types.MediaType
	// Config is the image's configuration, parsed from RawConfig, which has the digest in the
	// manifest.
	Config    *v1.ConfigFile
	RawConfig []byte

	store store
}

// PulledBytes returns the bytes that a registry sends of the image: its layers, compressed, and its
// configuration.
func (o *Opened) PulledBytes() int64 {
	sum := o.Manifest.Config.Size
	for _, layer := range o.Manifest.Layers {
		sum += layer.Size
	}
	return sum
}

// Open opens an image with layers that Resolve returned. The caller closes it. Its errors, and
// those of its blobs, do not contain the image's name, which WrapError adds.
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

// IsLocal reports whether its blobs can be read again at no cost.
func (o *Opened) IsLocal() bool {
	local, ok := o.store.(*localStore)
	return ok && local.files.seekable()
}

// Close closes connections and files. Callers must close the readers of blobs before.
func (o *Opened) Close() { o.store.close() }

// Blob opens a blob of the image, as the manifest describes it, at offset bytes from its beginning.
// The reader returns exactly the remaining bytes, then io.EOF. It verifies only their number: the
// caller checks the digest of the whole blob.
//
// The reader resumes a connection to a registry that breaks, or is silent for Source.Stall, at the
// same byte. It sends the request to the registry itself again, because the signature of a
// redirection may have expired. A registry without range requests sends the blob from its
// beginning. After three resumptions in a row without progress the reader fails with the last
// error. The reader ends with ctx, and is for one goroutine.
func (o *Opened) Blob(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error) {
	return openBlob(ctx, o.store, blob, offset)
}
