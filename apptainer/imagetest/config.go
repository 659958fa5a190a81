package imagetest

import (
	"bytes"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// WithRawConfig returns the image with this text as its configuration.
func WithRawConfig(img v1.Image, config string) v1.Image {
	return rawConfigImage{img, []byte(config)}
}

type rawConfigImage struct {
	v1.Image

	config []byte
}

// RawConfigFile returns the text.
func (i rawConfigImage) RawConfigFile() ([]byte, error) { return i.config, nil }

// ConfigFile returns the parsed text.
func (i rawConfigImage) ConfigFile() (*v1.ConfigFile, error) { return partial.ConfigFile(i) }

// ConfigName returns the digest of the text.
func (i rawConfigImage) ConfigName() (v1.Hash, error) { return partial.ConfigName(i) }

// Manifest returns the manifest, which names the text.
func (i rawConfigImage) Manifest() (*v1.Manifest, error) {
	m, err := i.Image.Manifest()
	if err != nil {
		return nil, err
	}
	m = m.DeepCopy()
	m.Config.Digest, m.Config.Size, err = v1.SHA256(bytes.NewReader(i.config))
	return m, err
}

// RawManifest returns the manifest as JSON.
func (i rawConfigImage) RawManifest() ([]byte, error) { return partial.RawManifest(i) }

// Digest returns the digest of the manifest.
func (i rawConfigImage) Digest() (v1.Hash, error) { return partial.Digest(i) }

// Size returns the size of the manifest.
func (i rawConfigImage) Size() (int64, error) { return partial.Size(i) }
