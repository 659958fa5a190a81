package pins

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/spool"
)

// HomesOver returns a judge for the images of all workers that share one engine. A holder's home is its
// worker's own directory; ours judges the holders of this worker. A holder of another worker is over if its run needs
// nothing any more by that worker's ledger, or if the worker's directory is gone or has another ledger, because
// then no worker can resume its runs.
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
		rows := map[string]cache.Holder{}
		for _, h := range holders {
			bundle, is := strings.CutPrefix(string(h), string(RowHolder(held.Holder.Bridge, "")))
			if over[h] = err != nil || !is; !over[h] {
				rows[bundle] = h
			}
		}
		judgeOthers(ctx, held.Holder.Ledger, rows, over)
		return over, nil
	}
}

// judgeOthers judges rows of another worker by its ledger. If the ledger cannot be read, none is over.
func judgeOthers(ctx context.Context, where string, rows map[string]cache.Holder, over map[cache.Holder]bool) {
	if len(rows) == 0 {
		return
	}
	reader, err := ledger.OpenToRead(ctx, where)
	if err != nil {
		return
	}
	defer func() { _ = reader.Close() }() // it was only read
	_ = Judge{Ledger: reader}.judgeRows(ctx, rows, over)
}
