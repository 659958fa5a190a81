package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// maxReserve is what a download leaves of a disk at least, or a twentieth of a
// small disk: jobs write there too.
const maxReserve = 1 << 30

// room is how much one dependency may hold.
type room struct {
	tarstream.Limits
	// free is what the disk had, where that is the bound, and -1 where it is not;
	// reserve what of it stays free.
	free, reserve int64
}

// room looks how much a download to tmp may hold: what the site allows, and
// not more than the disk has, with what is in tmp already.
func (s *Stager) room(tmp string) (room, error) {
	disk, err := diskspace.Of(filepath.Dir(tmp))
	if err != nil {
		return room{}, err
	}
	reserve := s.reserve(disk.Total)
	most := max(1, disk.Free-reserve+held(tmp))
	r := room{Limits: s.Limits, free: -1}
	if r.Bytes == 0 || most < r.Bytes {
		r.Bytes, r.free, r.reserve = most, disk.Free, reserve
	}
	return r, nil
}

// reserve is how much of a disk of this size is left free.
func (s *Stager) reserve(total int64) int64 {
	least := min(maxReserve, total/20)
	if s.LowWater != nil {
		return max(least, s.LowWater(total))
	}
	return least
}

// spare refuses to make an image, of which nobody knows how much it will take,
// on a disk that has too little free already.
func (im *Images) spare(tmp string) error {
	disk, err := diskspace.Of(filepath.Dir(tmp))
	if err != nil {
		return err
	}
	if im.LowWater != nil && disk.Free < im.LowWater(disk.Total) {
		return fmt.Errorf("%s: %w", freeWords(disk.Free, im.LowWater(disk.Total)), syscall.ENOSPC)
	}
	return nil
}

// held is how much the files below a path hold. What cannot be read counts
// nothing: the disk is only thought fuller for it.
func held(path string) (bytes int64) {
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

// explain says of a download that was too large what the bound was. Where it
// was the disk's, the disk is full for this download, which may change.
func (r room) explain(err error) error {
	var over *tarstream.LimitError
	switch {
	case !errors.As(err, &over):
		return err
	case over.Limits.Entries > 0:
		return fmt.Errorf("%w: a dependency may hold %d files at most on this cluster", tarstream.ErrTooLarge, over.Limits.Entries)
	case r.free < 0:
		return fmt.Errorf("%w: a dependency may hold %s at most on this cluster", tarstream.ErrTooLarge, codalab.FormatSize(r.Bytes))
	}
	return fmt.Errorf("it does not fit: %s: %w", freeWords(r.free, r.reserve), syscall.ENOSPC)
}

// freeWords say what the disk has, and how much of it is not for downloads.
func freeWords(free, reserve int64) string {
	return fmt.Sprintf("the cluster's shared disk has %s free, of which %s stay free", codalab.FormatSize(free), codalab.FormatSize(reserve))
}
