package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// LowWater is the free space that the shared disk must have for new work to begin. If both fields are set
// the smaller amount counts; if none is, there is no low water.
type LowWater struct {
	Bytes int64
	// Share is a part of the whole disk, between 0 and 1.
	Share float64
}

// After the disk was low, new work begins again only at a tenth above the low water, so that work does
// not begin and stop with each file. If the low water is in bytes, filesShare is the part of the disk's
// files that must be free.
const (
	beyondLow  = 1. / 10
	filesShare = 0.01
)

// Of returns the low water of a disk of this size, in bytes.
func (l LowWater) Of(total int64) int64 {
	low, share := l.Bytes, int64(l.Share*float64(total))
	if low == 0 || share > 0 && share < low {
		low = share
	}
	return low
}

// Lack returns the reason for which nothing new may be put onto the shared disk, as text that may follow
// "Waiting: "; empty if there is room. If before is set, the disk was low the last time, and needs more
// free space than the low water.
func (l LowWater) Lack(s spool.Space, before bool) string {
	low := float64(l.Of(s.Total))
	files := l.Share
	if files == 0 && l.Bytes > 0 {
		files = filesShare
	}
	files *= float64(s.Files)
	free, freeFiles := float64(s.Free), float64(s.FreeFiles)
	enough, enoughFiles := low+low*beyondLow, files+files*beyondLow
	switch {
	case free < low:
		return fmt.Sprintf("the site's disk has %s free, below its low water of %s", codalab.FormatSize(s.Free), codalab.FormatSize(int64(low)))
	case freeFiles < files:
		return fmt.Sprintf("the site's disk has room for %d more files, below its low water of %d", s.FreeFiles, int64(files))
	case before && free < enough:
		return fmt.Sprintf("the site's disk has %s free, and new work begins again at %s", codalab.FormatSize(s.Free), codalab.FormatSize(int64(enough)))
	case before && freeFiles < enoughFiles:
		return fmt.Sprintf("the site's disk has room for %d more files, and new work begins again at %d", s.FreeFiles, int64(enoughFiles))
	}
	return ""
}

// applyDiskSpace applies news about the room on the shared disk. A row that has just entered staging keeps
// the reason of that step.
func (d *decision) applyDiskSpace() {
	now := d.news.DiskLow
	if now == nil || *now == d.row.DiskLow {
		return
	}
	switch before := d.row.DiskLow; {
	case *now == "":
		d.row.Reason = "new work may be put onto the shared disk again"
		d.row.FailedTries, d.row.FailingSince, d.row.FailureKindSince = 0, time.Time{}, time.Time{} // failures on a disk that was nearly full do not count against the next try
	case before == "" && d.from == Staging:
		d.row.Reason = "nothing new may be put onto the shared disk"
	}
	d.row.DiskLow = *now
}
