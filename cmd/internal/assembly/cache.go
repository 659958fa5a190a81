package assembly

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/spool"
)

// CacheDir returns the cache's directory.
//
// Bridges of several versions may use a group's cache at the same time. Earlier versions ignore the pins of a
// content, so the group's cache has a directory of its own.
func CacheDir(c config.Config) string {
	dir := cmp.Or(c.Cache.Dir, spool.Layout(c.Shared).Cache())
	if c.Cache.Group {
		return filepath.Join(dir, "v2")
	}
	return dir
}

// CacheOptions returns the cache's options from the configuration. over reports which holders of pins are over;
// nil if nobody can judge them.
func CacheOptions(c config.Config, over func(context.Context, []cache.Holder) (map[cache.Holder]bool, error)) cache.Options {
	settle := c.Cache.Settle.Duration
	if settle == 0 {
		settle = -1 // to the cache 0 means its default
	}
	return cache.Options{
		Size: c.Cache.Size.Bytes, Quota: c.Cache.Quota,
		High: float64(c.Cache.High) / 100, Low: float64(c.Cache.Low) / 100,
		MinFree: c.Cache.MinFree.Or(defaultMinFree(CacheDir(c))),
		Settle:  settle, Group: c.Cache.Group, Over: over,
	}
}

// defaultMinFree is a tenth of the disk, but at most 100 GiB. The directory need not exist yet.
func defaultMinFree(dir string) int64 {
	disk, err := diskspace.Of(diskspace.Nearest(dir))
	if err != nil {
		return 0
	}
	const most = 100 << 30
	return min(disk.Total/10, most)
}
