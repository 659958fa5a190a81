package pins

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/spool"
)

// HomesOver returns a judge for the images of all workers that share one engine. A holder's home is its
// worker's own directory; ours judges the holders of this worker. A holder of another worker is over if that
// worker's directory is gone or has another ledger, because then no worker can resume its runs.
func HomesOver(own string, ours func(ctx context.Context, holders []cache.Holder) (map[cache.Holder]bool, error)) func(ctx context.Context, home string, holders []cache.Holder) (map[cache.Holder]bool, error) {
	return func(ctx context.Context, home string, holders []cache.Holder) (map[cache.Holder]bool, error) {
		if home == own {
			return ours(ctx, holders)
		}
		over := map[cache.Holder]bool{}
		held, err := lease.Read(spool.Layout(home).BridgeDir())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return over, nil // it cannot be judged now
		}
		for _, h := range holders {
			over[h] = err != nil || !strings.HasPrefix(string(h), string(RowHolder(held.Holder.Bridge, "")))
		}
		return over, nil
	}
}
