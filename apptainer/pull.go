package apptainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

const (
	// pullsAtOnce limits the layers of one image that are pulled at the same time.
	pullsAtOnce = 3
	// maxLayers limits the layers of an image. Docker makes at most 127.
	maxLayers = 1000
)

// checkImage refuses unsupported images. room limits the bytes of all layers together.
func checkImage(opened *source.Opened, architecture string, room int64) error {
	// The platform comes first: layers of a Windows image have types of their own.
	switch config := opened.Config; {
	case config.OS != "" && !source.IsLinux(config.OS):
		return fmt.Errorf("it is made for %s, and only Linux images can be run", config.OS)
	case config.Architecture != "" && source.NormalArchitecture(config.Architecture) != architecture:
		return fmt.Errorf("it is made for linux/%s, not for linux/%s", config.Architecture, architecture)
	}
	layers, diffIDs, most := opened.Manifest.Layers, opened.Config.RootFS.DiffIDs, room
	for i, l := range layers {
		err := checkLayer(l)
		if err == nil && l.Size > room {
			err = fmt.Errorf("%w: layers of more than %s", flatten.ErrTooLarge, flatten.Size(most))
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

// Media types of layers that are not in any standard. A few builders write the first one into Docker
// manifests. Docker takes the others, too.
const (
	dockerLayerZstd types.MediaType = "application/vnd.docker.image.rootfs.diff.tar.zstd"
	ociLayerBzip2   types.MediaType = "application/vnd.oci.image.layer.v1.tar+bzip2"
	ociLayerXZ      types.MediaType = "application/vnd.oci.image.layer.v1.tar+xz"
)

func checkLayer(l v1.Descriptor) error {
	switch l.MediaType {
	case types.DockerLayer, types.OCILayer, types.OCILayerZStd, dockerLayerZstd, ociLayerBzip2, ociLayerXZ, types.DockerUncompressedLayer, types.OCIUncompressedLayer:
	case types.DockerForeignLayer, types.OCIRestrictedLayer, types.OCIUncompressedRestrictedLayer:
		return errors.New("it may not be distributed by a registry and has to come from its vendor, which is not handled")
	default: // only these types are layers
		return fmt.Errorf("its type %s is not handled", l.MediaType)
	}
	if l.Digest.Algorithm != "sha256" || l.Size < 0 {
		return fmt.Errorf("its digest %s and size %d are not handled", l.Digest, l.Size)
	}
	return nil
}

// pull pulls the layers in the order of their reading, and continues from the files of an earlier
// pull. It returns when it has all layers, or one has failed.
func (l *layers) pull(ctx context.Context, open opener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pullsAtOnce)
	begun := map[*blob]bool{}
	for i := len(l.blobs) - 1; i >= 0; i-- {
		b := l.blobs[i]
		if begun[b] || b.local != nil {
			continue
		}
		begun[b] = true
		group.Go(func() (err error) {
			l.nicely(func() { err = b.pull(ctx, open, l.report.addPulled) })
			if err != nil {
				return fmt.Errorf("layer %d of %d: %w", i+1, len(l.blobs), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// toPull returns the number of bytes that are not in the layers' directory yet.
func (l *layers) toPull() int64 {
	missing := l.report.toPull
	counted := map[*blob]bool{}
	for _, b := range l.blobs {
		if counted[b] || b.local != nil {
			continue
		}
		counted[b] = true
		if info, err := os.Stat(b.path); err == nil {
			missing -= min(b.Size, info.Size())
		}
	}
	return missing
}

// checkRoom makes the directory for the layers. It checks that the disks have room for the missing
// layers, and for a SIF in sifDir unless that is empty. A SIF is rarely larger than its layers.
func (c Converter) checkRoom(l *layers, dir, sifDir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o700); err != nil {
		return fmt.Errorf("make room for its layers: %w", err)
	}
	needs := map[string]int64{dir: l.toPull()}
	switch {
	case sifDir == "":
	case sameDisk(dir, sifDir):
		needs[dir] += l.report.toConvert
	default:
		needs[sifDir] = l.report.toConvert
	}
	for path, need := range needs {
		space, err := diskspace.Of(path)
		if err != nil {
			return fmt.Errorf("make room for it: %w", err)
		}
		var reserve int64
		if c.Reserve != nil && (path == sifDir || len(needs) == 1) {
			reserve = c.Reserve(space.Total)
		}
		if space.Total > 0 && space.Free-reserve < need {
			return fmt.Errorf("it needs about %d MiB on the disk of %s, which has %d MiB free, of which %d MiB must stay free: %w",
				need>>20, path, space.Free>>20, reserve>>20, syscall.ENOSPC)
		}
	}
	return nil
}

func sameDisk(a, b string) bool {
	var s, t syscall.Stat_t
	return syscall.Stat(a, &s) == nil && syscall.Stat(b, &t) == nil && s.Dev == t.Dev
}
