package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// upkeepEvery is the pause between two passes of upkeep.
const upkeepEvery = time.Minute

// upkeep trims the cache now and then, until ctx ends. It begins once Slurm was
// seen as a whole, and with that the pins that are over.
func upkeep(ctx context.Context, b *bridge.Bridge, c *cache.Cache, log *slog.Logger) {
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !b.Observed() {
			continue
		}
		t, err := c.Trim(ctx, cache.TrimOptions{})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.WarnContext(ctx, "the cache was not trimmed", slog.Any("error", err))
		case len(t.Retired)+t.Removed+len(t.Swept) > 0:
			log.InfoContext(ctx, "trimmed the cache", slog.Int("out_of_use", len(t.Retired)), slog.Int("removed", t.Removed),
				slog.String("freed", codalab.FormatSize(t.Freed)), slog.Int("swept", len(t.Swept)), slog.String("left", codalab.FormatSize(t.Usage.Bytes)))
		}
	}
}
