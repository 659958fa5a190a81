package assembly

import (
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/spool"
)

// sweepFirst is the pause between a bridge's start and its first sweep, sweepEvery the
// pause between two sweeps.
const (
	sweepFirst = time.Minute
	sweepEvery = time.Hour
)

// Sweeper returns a sweeper of the shared directory. workers are the programs that this
// bridge's jobs run, if the bridge is running.
func Sweeper(c config.Config, book sharedfiles.Ledger, slurm sharedfiles.Scheduler, workers []string, now func() time.Time) *sharedfiles.Sweeper {
	return &sharedfiles.Sweeper{
		Ledger: book, Scheduler: slurm, Disk: spool.Disk{Layout: spool.Layout(c.Shared)},
		Workers: workers, Grace: c.SweepGrace.Duration, Now: now,
	}
}
