package apptainer

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// Pull writes an image into dir as an OCI layout, and returns the image with a reference to that,
// which Convert can read without a network. Pull continues from the files of an earlier Pull, even
// one that was killed. Files of other images in dir stay, but its index lists only this image.
//
// An error is an *source.ImageError. It wraps ctx's error if that ended first. progress is called
// as by Convert; it may be nil.
func (c Converter) Pull(ctx context.Context, img source.Image, dir string, progress func(Progress)) (source.Image, error) {
	pulled, err := c.withDefaults().pullTo(ctx, img, dir, progress)
	if err != nil {
		return source.Image{}, imageError(ctx, img, err)
	}
	return pulled, nil
}

func (c Converter) pullTo(ctx context.Context, img source.Image, dir string, progress func(Progress)) (source.Image, error) {
	ref, err := source.ParseReference(string(source.OCILayout) + ":" + dir)
	if err != nil {
		return source.Image{}, err
	}
	opened, l, err := c.openLayers(ctx, img, dir, "", progress)
	if err != nil {
		return source.Image{}, err
	}
	defer opened.Close()
	if err := l.pull(ctx, opened.Blob); err != nil {
		return source.Image{}, err
	}
	if err := writeLayout(dir, opened, img.Architecture); err != nil {
		return source.Image{}, err
	}
	return source.Image{Reference: ref, Digest: img.Digest, Architecture: img.Architecture, Origin: img.PinnedReference()}, nil
}

// writeLayout writes the files that make the layers in dir an OCI layout, its index last.
func writeLayout(dir string, opened *source.Opened, architecture string) error {
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: opened.MediaType, Size: int64(len(opened.RawManifest)), Digest: opened.Digest,
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}},
	})
	if err != nil {
		return fmt.Errorf("list the image: %w", err)
	}
	for _, f := range []struct {
		name string
		data []byte
	}{
		{filepath.Join("blobs", "sha256", opened.Digest.Hex), opened.RawManifest},
		{filepath.Join("blobs", "sha256", opened.Manifest.Config.Digest.Hex), opened.RawConfig},
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
	} {
		if err := atomicfile.Write(filepath.Join(dir, f.name), f.data, 0o600); err != nil {
			return fmt.Errorf("write its layout: %w", err)
		}
	}
	return nil
}
