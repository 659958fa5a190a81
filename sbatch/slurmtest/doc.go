// Package slurmtest is a Slurm for tests: what its commands say and do, without
// its daemons. What it promises is that package sbatch's suite of tests finds no
// difference between it and a real cluster of Slurm 22.05.
//
// It has two storeys:
//
//   - [Controller] is the memory of slurmctld and slurmdbd. It is pure: no
//     clock, no goroutine, no disk, and a run with the same calls goes the same
//     way. A simulation drives it with a time of its own.
//   - [Cluster] is a Controller with a clock and with processes. It answers as
//     the executables sbatch, squeue, sacct, sacctmgr, scancel, sinfo and
//     scontrol in a directory, and within the process as the run function of an
//     [sbatch.Client].
//
// What it does not model it does not pretend to: an option, a command or a
// format that it does not know ends in an [UnmodelledError] error that no caller can
// take for Slurm's word.
//
// The words, states, reasons and exit statuses are those of Slurm 22.05.8,
// recorded from a cluster; each is in the suite that runs on both.
package slurmtest
