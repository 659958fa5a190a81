package apptainer_test

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A layer's compressor sees further back than a squashfs, whose blocks are compressed one by one.
// Without the check, this image of 4 MiB fills the disk.
func TestImageThatGrowsInASquashfsLeavesTheSitesReserve(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	noise := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	repeated := bytes.Repeat(noise, 64)
	stream := imagetest.TarStream(t, imagetest.Regular("a", string(repeated)))
	var packed bytes.Buffer
	w, err := zstd.NewWriter(&packed, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(16<<20))
	must(t, err)
	img := published(t, blobImage(t, compressed(t, &packed, w, [][]byte{stream}), types.OCILayerZStd, stream))
	for _, mksquashfs := range []string{"", "/nonexistent/mksquashfs"} {
		disk := t.TempDir()
		testenv.SmallDisk(t, disk, "size=512m")
		const reserve = 352 << 20
		c := apptainer.Converter{Source: imagetest.Source(), Mksquashfs: mksquashfs, TempDir: t.TempDir(), Reserve: func(int64) int64 { return reserve }}
		if mksquashfs != "" {
			testenv.ImageTool(t, "tar2sqfs")
		}
		err := c.Convert(t.Context(), img, filepath.Join(disk, "x.sif"), nil)
		imagetest.WantError(t, err, false, "unpacks to more than is allowed: its SIF takes more than")
		wantLeft(t, disk, false)
	}
}
