package source

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// How large a manifest and an image's configuration may be. Skopeo and Podman
// have the same bounds (containers/image internal/iolimits).
const (
	maxManifestBytes = 4 << 20
	maxConfigBytes   = 4 << 20
)

// store is where the image of one reference lies. It may be used by several
// goroutines at once.
type store interface {
	// manifest reads the manifest of that digest, or the one that the
	// reference stands for now, when digest is empty.
	manifest(ctx context.Context, digest string) (manifest, error)
	// blob opens a blob at an offset, as Opened.Blob says.
	blob(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error)
	// allowed gives the digest of what the reference stands for now, if it may
	// be read, without counting as a pull.
	allowed(ctx context.Context) (now string, private bool, err error)
	// close ends connections and closes files.
	close()
}

// manifest is one as it was read: of an image, or of a list of images.
type manifest struct {
	raw       []byte
	digest    v1.Hash
	mediaType types.MediaType
	private   bool // it was got with somebody's login
}

// newManifest checks what was read. The type is what the manifest says of
// itself; else what its sender says; else what it looks like
// (containers/image manifest: GuessMIMEType).
func newManifest(raw []byte, digest, sent string) (manifest, error) {
	m := manifest{raw: raw}
	algorithm := "sha256"
	if digest != "" {
		want, err := v1.NewHash(digest)
		if err != nil {
			return m, fmt.Errorf("read the manifest: %w", err)
		}
		algorithm = want.Algorithm
	}
	sum, err := v1.Hasher(algorithm)
	if err != nil {
		return m, fmt.Errorf("read the manifest: %w", err)
	}
	_, _ = sum.Write(raw) // never fails
	m.digest = v1.Hash{Algorithm: algorithm, Hex: hex.EncodeToString(sum.Sum(nil))}
	if digest != "" && m.digest.String() != digest {
		return m, fmt.Errorf("its manifest is corrupt: it is %s, not %s", m.digest, digest)
	}
	var looks struct {
		SchemaVersion int             `json:"schemaVersion"`
		MediaType     types.MediaType `json:"mediaType"`
		Manifests     json.RawMessage `json:"manifests"`
		Layers        json.RawMessage `json:"layers"`
		Config        json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal(raw, &looks); err != nil {
		return m, fmt.Errorf("its manifest cannot be read: %w", err)
	}
	switch {
	case looks.Manifests != nil && (looks.Layers != nil || looks.Config != nil):
		// Which one it is would depend on who reads it (CVE-2021-41190).
		return m, errors.New("its manifest is a list of platforms and an image at once")
	case looks.SchemaVersion == 1:
		m.mediaType = types.DockerManifestSchema1
	case looks.MediaType != "":
		m.mediaType = looks.MediaType
	case isManifestType(types.MediaType(sent)):
		m.mediaType = types.MediaType(sent)
	case looks.Manifests != nil:
		m.mediaType = types.OCIImageIndex
	case looks.Config != nil:
		m.mediaType = types.OCIManifestSchema1
	default:
		m.mediaType = types.MediaType(sent)
	}
	return m, nil
}

func isManifestType(t types.MediaType) bool { return t.IsImage() || t.IsIndex() || t.IsSchema1() }

func (m manifest) index() (*v1.IndexManifest, error) {
	list, err := v1.ParseIndexManifest(bytes.NewReader(m.raw))
	if err != nil {
		return nil, fmt.Errorf("its list of platforms cannot be read: %w", err)
	}
	return list, nil
}

func (m manifest) image() (*v1.Manifest, error) {
	image, err := v1.ParseManifest(bytes.NewReader(m.raw))
	if err != nil {
		return nil, fmt.Errorf("its manifest cannot be read: %w", err)
	}
	return image, nil
}

// readConfigBlob reads an image's configuration and checks its digest.
func readConfigBlob(ctx context.Context, s store, m manifest) (raw []byte, config *v1.ConfigFile, err error) {
	image, err := m.image()
	if err != nil {
		return nil, nil, err
	}
	d := image.Config
	if d.Size < 0 || d.Size > maxConfigBytes {
		return nil, nil, fmt.Errorf("its configuration is of %d bytes, and at most %d are handled", d.Size, maxConfigBytes)
	}
	r, err := openBlob(ctx, s, d, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("read its configuration: %w", err)
	}
	raw, err = io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, nil, fmt.Errorf("read its configuration: %w", err)
	}
	sum, err := v1.Hasher(d.Digest.Algorithm)
	if err != nil {
		return nil, nil, fmt.Errorf("read its configuration: %w", err)
	}
	_, _ = sum.Write(raw) // never fails
	if got := hex.EncodeToString(sum.Sum(nil)); got != d.Digest.Hex {
		return nil, nil, fmt.Errorf("its configuration is corrupt: it is %s:%s, not %s", d.Digest.Algorithm, got, d.Digest)
	}
	config, err = v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, nil, fmt.Errorf("its configuration cannot be read: %w", err)
	}
	return raw, config, nil
}

// openBlob opens a blob where it lies, which may be in the manifest itself.
func openBlob(ctx context.Context, s store, d v1.Descriptor, offset int64) (io.ReadCloser, error) {
	switch {
	case offset < 0 || offset > d.Size:
		return nil, fmt.Errorf("blob %s has no byte %d", d.Digest, offset)
	case d.Data != nil && int64(len(d.Data)) == d.Size:
		return io.NopCloser(bytes.NewReader(d.Data[offset:])), nil
	case offset == d.Size:
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	return s.blob(ctx, d, offset)
}
