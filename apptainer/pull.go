package apptainer

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// Layers of one image that are pulled at a time, and how many an image may
// have: Docker makes 127 at most.
const (
	pullsAtOnce = 3
	maxLayers   = 1000
)

// checkImage refuses what is not handled. room is how many bytes the image's layers
// may have together.
func checkImage(image *source.Opened, architecture string, room int64) error {
	if err := checkPlatform(image.Config, architecture); err != nil {
		return err // before its layers: those of a Windows image are odd, too
	}
	layers, diffIDs := image.Manifest.Layers, image.Config.RootFS.DiffIDs
	for i, l := range layers {
		err := checkLayer(l)
		if err == nil && l.Size > room {
			err = flatten.ErrTooLarge
		}
		if room -= l.Size; err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		}
	}
	if len(layers) != len(diffIDs) || len(layers) > maxLayers {
		return fmt.Errorf("its manifest lists %d layers, its configuration %d, and at most %d are handled", len(layers), len(diffIDs), maxLayers)
	}
	return nil
}

func checkPlatform(config *v1.ConfigFile, architecture string) error {
	if config.OS != "" && config.OS != "linux" {
		return fmt.Errorf("it is made for %s, and only Linux images can be run", config.OS)
	}
	if config.Architecture != "" && config.Architecture != architecture {
		return fmt.Errorf("it is made for linux/%s, not for linux/%s", config.Architecture, architecture)
	}
	return nil
}

// dockerLayerZstd is what a few builders call a zstd layer in a manifest of
// Docker's form; there is no standard for it.
const dockerLayerZstd types.MediaType = "application/vnd.docker.image.rootfs.diff.tar.zstd"

func checkLayer(l v1.Descriptor) error {
	switch l.MediaType { //nolint:exhaustive // of all types these are layers
	case types.DockerLayer, types.OCILayer, types.OCILayerZStd, dockerLayerZstd, types.DockerUncompressedLayer, types.OCIUncompressedLayer:
	case types.DockerForeignLayer, types.OCIRestrictedLayer, types.OCIUncompressedRestrictedLayer:
		return errors.New("it may not be distributed by a registry and has to be got from its maker, which is not handled")
	default:
		return fmt.Errorf("its type %s is not handled", l.MediaType)
	}
	if l.Digest.Algorithm != "sha256" || l.Size < 0 {
		return fmt.Errorf("its digest %s and size %d are not handled", l.Digest, l.Size)
	}
	return nil
}

// pull brings the layers into dir while they are read. It returns when all are
// there, or one cannot be had. Layers that an earlier pull left there, whole or
// in part, are gone on with.
func (l *layers) pull(ctx context.Context, open opener, report *reporter) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pullsAtOnce)
	began := map[v1.Hash]bool{}
	for i := len(l.blobs) - 1; i >= 0; i-- { // as they are read
		b := l.blobs[i]
		if began[b.Digest] || b.local != nil {
			continue
		}
		began[b.Digest] = true
		group.Go(func() (err error) {
			l.nicely(func() { err = b.pull(ctx, open, report.pull) })
			if err != nil {
				return fmt.Errorf("layer %d of %d: %w", i+1, len(l.blobs), err)
			}
			return nil
		})
	}
	return group.Wait()
}
