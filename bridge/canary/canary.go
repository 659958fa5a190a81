// Package canary finds out whether a bundle or its queue is at fault for a refusal of Slurm. It asks Slurm
// whether it would accept a small job with the partition, the account, the QOS, the reservation and the
// other options of a queue, and with nothing of a bundle (sbatch(1): --test-only):
//
//   - If Slurm accepts the small job, the bundle's request is at fault.
//   - If Slurm refuses it too, the queue is at fault: its configuration, or the site.
//
// A question makes no job. It costs the controller as much as a submission. Slurm 22.05 also refuses the
// small job while all nodes of the partition are down, although it would accept a job and let it wait. So
// the answer matters only after Slurm has refused a real job, or has said that one can never start.
package canary

import (
	"context"
	"errors"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Slurm answers whether it would accept a job. *sbatch.Client documents Try.
type Slurm interface {
	Try(ctx context.Context, r sbatch.Request) error
}

// memoryMiB is the memory of the small job, in which a worker could run.
const memoryMiB = 512

// Ask asks Slurm whether it accepts the small job of a queue. It returns the number of GPUs that the small
// job has to request, because some partitions accept no job without GPUs. The error is that of the job
// without GPUs.
func Ask(ctx context.Context, slurm Slurm, q plan.Queue) (gpus int64, err error) {
	err = slurm.Try(ctx, smallJob(q, 0))
	var refused *sbatch.Error
	if !errors.As(err, &refused) || !refused.Refused {
		return 0, err
	}
	if slurm.Try(ctx, smallJob(q, 1)) == nil {
		return 1, nil
	}
	return 0, err
}

// AskPack asks Slurm whether it accepts the longest pack of a queue, with small members. gpus is the result of Ask, for each member.
func AskPack(ctx context.Context, slurm Slurm, q plan.Queue, gpus int64) error {
	r := q.LargestPack(gpus, memoryMiB<<20)
	r.Name, r.Dir, r.Output, r.Script = "cl-canary", "/", "/dev/null", "#!/bin/sh\n"
	return slurm.Try(ctx, r)
}

func smallJob(q plan.Queue, gpus int64) sbatch.Request {
	r := q.Request(gpus)
	r.Name, r.Dir, r.Output, r.Script = "cl-canary", "/", "/dev/null", "#!/bin/sh\n"
	r.CPUs, r.MemoryMiB, r.Time = 1, memoryMiB, time.Minute
	return r
}
