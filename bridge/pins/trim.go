package pins

import (
	"context"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

// trimEvery is the pause between two passes of KeepTrimmed.
const trimEvery = time.Minute

// KeepTrimmed pins the kept images once more, and then trims the cache each minute until ctx ends.
// It skips a pass while ready is false: before the bridge has seen Slurm as a whole it is not
// known which pins are over. After a trim it forgets the references of images that the cache no longer
// has. im is nil for a cache without images.
func KeepTrimmed(ctx context.Context, ready func() bool, c *cache.Cache, im *images.Images, logger *slog.Logger) {
	if im != nil {
		if err := im.Repin(ctx); err != nil {
			logger.WarnContext(ctx, "kept images were not pinned once more", slog.Any("error", err))
		}
	}
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !ready() {
			continue
		}
		t, err := c.Trim(ctx, cache.TrimOptions{})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			logger.WarnContext(ctx, "the cache was not trimmed", slog.Any("error", err))
		case len(t.Retired)+t.Removed+len(t.Swept) > 0:
			logger.InfoContext(ctx, "trimmed the cache", slog.Int("out_of_use", len(t.Retired)), slog.Int("removed", t.Removed),
				slog.Int64("freed_bytes", t.Freed), slog.Int("swept", len(t.Swept)), slog.Int64("left_bytes", t.Usage.Bytes))
		}
		if t.Removed > 0 && im != nil {
			if err := forgetReferences(ctx, c, &im.References); err != nil {
				logger.WarnContext(ctx, "references of images that are gone were not forgotten", slog.Any("error", err))
			}
		}
	}
}

// forgetReferences forgets the references of images of which the cache has no SIF.
func forgetReferences(ctx context.Context, c *cache.Cache, references *images.References) error {
	entries, err := c.Entries(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, e := range entries {
		if img, ok := images.ParseKey(e.Key); ok {
			there[img.Digest+" "+img.Architecture] = true
		}
	}
	return references.Forget(func(digest, architecture string) bool { return there[digest+" "+architecture] })
}
