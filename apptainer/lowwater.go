package apptainer

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

// aboveLowWater is a Flattener whose stream ends with an error if the SIF, which is made of it,
// takes bytes of its disk that must stay free, and is much larger than the layers, for which there
// was room. Its image is to blame then: contents that repeat at a distance compress well in a layer,
// and not in the blocks of a squashfs.
type aboveLowWater struct {
	*flatten.Flattener

	sif     string
	layers  int64                   // compressed bytes
	reserve func(total int64) int64 // may be nil
}

// Write is that of Flattener.
func (a aboveLowWater) Write(ctx context.Context, w io.Writer) error {
	if a.reserve == nil {
		return a.Flattener.Write(ctx, w)
	}
	const step = 32 << 20
	unchecked := 0
	return a.Flattener.Write(ctx, writerFunc(func(p []byte) (int, error) {
		if unchecked += len(p); unchecked >= step {
			unchecked = 0
			if err := a.check(); err != nil {
				return 0, err
			}
		}
		return w.Write(p)
	}))
}

func (a aboveLowWater) check() error {
	const slack = 64 << 20 // for small layers
	size := int64(0)
	for _, path := range []string{a.sif, separateFile(a.sif)} {
		if info, err := os.Stat(path); err == nil {
			size += info.Size()
		}
	}
	if size <= 2*a.layers+slack {
		return nil
	}
	space, err := diskspace.Of(filepath.Dir(a.sif))
	if reserve := a.reserve(space.Total); err == nil && space.Total > 0 && space.Free < reserve {
		return fmt.Errorf("%w: its SIF takes more than %s and its layers %s, and %s of the disk must stay free",
			flatten.ErrTooLarge, flatten.Size(size), flatten.Size(a.layers), flatten.Size(reserve))
	}
	return nil
}
