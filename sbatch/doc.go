// Package sbatch submits, observes and cancels batch jobs through Slurm's commands. A
// Client runs the commands; an Observer in front of it spares the controller. The
// package does not know what the jobs are for.
//
// The package parses everything that Slurm prints, and classifies all of Slurm's
// errors. Three properties of Slurm shape it:
//
//   - A submission may succeed although its answer is lost. Submit therefore
//     distinguishes a submission that was certainly refused from one whose outcome
//     is unknown. A caller finds the job of an unknown outcome by its name.
//   - A job that is not listed may still exist. A Snapshot is either complete or
//     an error.
//   - Slurm's commands read the caller's environment. The package starts them in
//     an environment of its own, without the SBATCH_*, SQUEUE_* and SLURM_*
//     variables of a login shell.
//
// The package follows Slurm 22.05 and its manual pages sbatch(1), squeue(1),
// sacct(1) and scancel(1). It keeps states and reasons as Slurm spells them.
package sbatch
