// Package sbatch submits, observes and cancels batch jobs through Slurm's commands. A Client runs the
// commands; an Observer in front of it limits the requests to the controller. The package is independent
// of the jobs' purpose.
//
// The package parses all output of these commands, and classifies all of Slurm's errors. Three properties
// of Slurm shape it:
//
//   - A submission may succeed although its answer is lost. Submit therefore distinguishes a submission
//     that was certainly refused from one with an unknown outcome. The caller then finds the job by its
//     name.
//   - A job that is not listed may still exist. A Snapshot is either complete or an error.
//   - Slurm's commands read the caller's environment. The package starts them in an environment of its
//     own, without the SBATCH_*, SQUEUE_* and SLURM_* variables of a login shell.
//
// The package follows Slurm 22.05 and its manual pages sbatch(1), squeue(1), sacct(1) and scancel(1). It
// keeps states and reasons as Slurm spells them.
package sbatch
