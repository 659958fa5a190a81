package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Limits of a manifest and of an image's configuration. Skopeo and Podman have the same
// (containers/image internal/iolimits).
const (
	maxManifestBytes = 4 << 20
	maxConfigBytes   = 4 << 20
)

// maxObjects limits the JSON objects in a manifest or a configuration. The smallest, "{}", becomes a
// hundred times as large in memory. A manifest has about two for each of at most 1,000 layers.
const maxObjects = 50_000

func checkObjects(raw []byte) error {
	if bytes.Count(raw, []byte("{")) > maxObjects {
		return fmt.Errorf("it has more than %d JSON objects", maxObjects)
	}
	return nil
}

// store reads the image of one reference. Several goroutines may use it at the same time.
type store interface {
	// manifest reads the manifest with this digest or, if that is empty, the current manifest of
	// the reference.
	manifest(ctx context.Context, digest string) (manifest, error)
	// blob opens a blob at an offset; see Opened.Blob.
	blob(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error)
	// current returns the digest of the reference's current manifest, if it may be read, without
	// counting as a pull. private reports whether that needed a login.
	current(ctx context.Context) (digest string, private bool, err error)
	// close closes connections and files.
	close()
}

// manifest describes an image, or lists images.
type manifest struct {
	raw       []byte
	digest    v1.Hash
	mediaType types.MediaType
	private   bool // it was read with a login
}

// newManifest parses a manifest, and checks its digest unless that is empty. The media type is the
// manifest's own, or its sender's, or a guess from its fields (containers/image manifest:
// GuessMIMEType).
func newManifest(raw []byte, digest, sent string) (manifest, error) {
	m := manifest{raw: raw, digest: digestOf(raw)}
	if digest != "" {
		if _, err := v1.NewHash(digest); err != nil {
			return m, fmt.Errorf("read the manifest: %w", err)
		}
	}
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
	err := checkObjects(raw)
	if err == nil {
		err = json.Unmarshal(raw, &looks)
	}
	if err != nil {
		return m, fmt.Errorf("its manifest cannot be read: %w", err)
	}
	sentType := types.MediaType(sent)
	switch {
	case looks.Manifests != nil && (looks.Layers != nil || looks.Config != nil):
		// Different readers would treat it differently (CVE-2021-41190).
		return m, errors.New("its manifest is a list of platforms and an image at once")
	case looks.SchemaVersion == 1:
		m.mediaType = types.DockerManifestSchema1
	case looks.MediaType != "":
		m.mediaType = looks.MediaType
	case sentType.IsImage(), sentType.IsIndex(), sentType.IsSchema1():
		m.mediaType = sentType
	case looks.Manifests != nil:
		m.mediaType = types.OCIImageIndex
	case looks.Config != nil:
		m.mediaType = types.OCIManifestSchema1
	default:
		m.mediaType = sentType
	}
	return m, nil
}

func digestOf(data []byte) v1.Hash {
	sum := sha256.Sum256(data)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

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
	if got := digestOf(raw); got != d.Digest {
		return nil, nil, fmt.Errorf("its configuration is corrupt: it is %s, not %s", got, d.Digest)
	}
	if config, err = parseConfig(raw); err != nil {
		return nil, nil, err
	}
	return raw, config, nil
}

func parseConfig(raw []byte) (*v1.ConfigFile, error) {
	var config *v1.ConfigFile
	err := checkObjects(raw)
	if err == nil {
		config, err = v1.ParseConfigFile(bytes.NewReader(raw))
	}
	if err != nil {
		return nil, fmt.Errorf("its configuration cannot be read: %w", err)
	}
	return config, nil
}

// openBlob opens a blob of a store, or one that the manifest itself contains.
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
