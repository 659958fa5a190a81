// Package canary finds out whose fault a refusal of Slurm is. It asks Slurm whether it would take a small
// job with the partition, the account, the QOS, the reservation and the other options of a queue, and with
// nothing of a bundle's (sbatch(1): --test-only):
//
//   - If Slurm takes the small job, a refusal is the fault of the bundle's request.
//   - If Slurm refuses it too, the queue is at fault: its configuration, or the site.
//
// A question makes no job. It costs the controller as much as a submission. Slurm 22.05 refuses the small job
// also while all nodes of the partition are down, though it would take a job and let it wait: so a refusal
// matters only where Slurm has refused a real job, or says that one can never start.
package canary

import (
	"context"
	"errors"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Slurm says whether it would take a job. *sbatch.Client documents Try.
type Slurm interface {
	Try(ctx context.Context, r sbatch.Request) error
}

// memoryMiB is the memory of the small job: a worker runs in it.
const memoryMiB = 512

// Ask asks Slurm whether it takes the small job of a queue. It returns the number of GPUs that the small
// job has to ask for: some partitions take no job without GPUs. The error is that of the job without GPUs.
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

func smallJob(q plan.Queue, gpus int64) sbatch.Request {
	r := q.Request(gpus)
	r.Name, r.Dir, r.Output, r.Script = "cl-canary", "/", "/dev/null", "#!/bin/sh\n"
	r.CPUs, r.MemoryMiB, r.Time = 1, memoryMiB, time.Minute
	return r
}
