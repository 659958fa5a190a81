// Package sbatch speaks to Slurm through its commands: it submits batch jobs,
// observes and cancels them. It knows nothing of what the jobs are for.
//
// All text that Slurm prints is parsed here, and all of Slurm's errors are
// judged here. Three things about Slurm shape the package:
//
//   - A submission may succeed though its answer is lost. Submit therefore
//     tells apart what was surely refused and what is unknown; the name given
//     to a job is the way to find it again.
//   - What is not listed is not gone. A Snapshot is either whole or an error.
//   - Slurm's commands read the caller's environment. They are started in an
//     environment of their own, without the SBATCH_*, SQUEUE_* and SLURM_* of
//     a login shell.
//
// It follows the behaviour of Slurm 22.05, the sbatch(1), squeue(1), sacct(1)
// and scancel(1) pages, and keeps states and reasons as Slurm spells them.
package sbatch
