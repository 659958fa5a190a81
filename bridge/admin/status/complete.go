package status

import (
	"context"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Complete returns the bundles whose UUIDs begin with what has been typed, for a shell.
func Complete(ctx context.Context, r *ledger.Reader, typed string) ([]string, error) {
	const most = 100
	switch typed {
	case "", "0", "0x":
		return r.Bundles(ctx, "0x", most)
	}
	if !codalab.IsUUIDPrefix(typed) {
		return nil, nil
	}
	return r.Bundles(ctx, typed, most)
}
