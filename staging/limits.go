package staging

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// maxReserve is what a download leaves of a disk at least, or a twentieth of a
// small disk: jobs write there too.
const maxReserve = 1 << 30

// room is how much one dependency may hold.
type room struct {
	tarstream.Limits
	free int64 // what the disk had, where that is the bound; -1 where it is not
}

// room looks how much a download to tmp may hold: what the site allows, and
// not more than the disk has, with what is in tmp already.
func (s *Stager) room(tmp string) (room, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(tmp), &disk); err != nil {
		return room{}, fmt.Errorf("ask how full the disk is: %w", err)
	}
	size := func(blocks uint64) int64 { return int64(blocks) * disk.Frsize } //nolint:gosec // no disk is that large
	free := size(disk.Bavail)
	most := max(1, free-min(maxReserve, size(disk.Blocks)/20)+held(tmp))
	r := room{Limits: s.Limits, free: -1}
	if r.Bytes == 0 || most < r.Bytes {
		r.Bytes, r.free = most, free
	}
	return r, nil
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
	return fmt.Errorf("it does not fit on the cluster's shared disk, which has %s free: %w", codalab.FormatSize(r.free), syscall.ENOSPC)
}

// bounded reads a file's content, up to a limit.
type bounded struct {
	r     io.Reader
	limit int64
	n     int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	if b.n > b.limit {
		return 0, &tarstream.LimitError{Limits: tarstream.Limits{Bytes: b.limit}}
	}
	return n, err //nolint:wrapcheck // a reader passes its errors on
}
