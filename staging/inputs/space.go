package inputs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// A download leaves a twentieth of the disk free, at most maxReserve, because jobs write there,
// too. LowWater may demand more.
const maxReserve = 1 << 30

// bound limits one download.
type bound struct {
	tarstream.Limits
	// free is the disk's free space if that is the limit, and otherwise -1. reserve is the space
	// that must stay free.
	free, reserve int64
}

// bound returns the limit for a download to tmp: the site's, or the space that the disk has,
// including the files that are already in tmp.
func (d *Dependencies) bound(tmp string) (bound, error) {
	disk, err := diskspace.Of(filepath.Dir(tmp))
	if err != nil {
		return bound{}, err
	}
	reserve := min(maxReserve, disk.Total/20)
	if d.LowWater != nil {
		reserve = max(reserve, d.LowWater(disk.Total))
	}
	most := max(1, disk.Free-reserve+sizeOf(tmp))
	b := bound{free: -1}
	if d.Limits != nil {
		b.Limits = d.Limits()
	}
	if b.Bytes == 0 || most < b.Bytes {
		b.Bytes, b.free, b.reserve = most, disk.Free, reserve
	}
	return b, nil
}

// sizeOf adds up the files below a path. It ignores unreadable ones.
func sizeOf(path string) (bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error { // its errors are in err
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // see above
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// explain names the limit that a download exceeded. If that was the disk's, the disk is full for
// this download, which may change.
func (b bound) explain(err error) error {
	var over *tarstream.LimitError
	switch {
	case !errors.As(err, &over):
		return err
	case over.Limits.Entries > 0:
		return fmt.Errorf("%w: a dependency may hold %d files at most on this cluster", tarstream.ErrTooLarge, over.Limits.Entries)
	case b.free < 0:
		return fmt.Errorf("%w: a dependency may hold %s at most on this cluster", tarstream.ErrTooLarge, codalab.FormatSize(b.Bytes))
	}
	return fmt.Errorf("it does not fit: %s: %w", transfer.DescribeSpace(b.free, b.reserve), syscall.ENOSPC)
}
