// Package slurmtest is a Slurm for tests, without Slurm's daemons. The suite of package sbatch runs on it and
// on real clusters of Slurm 22.05, 24.11 and 26.05, and finds no difference. A [Site] has a [Version].
//
// It has three layers:
//
//   - [Controller] is the state of slurmctld and slurmdbd. It is pure: it has no clock, no goroutine and
//     no disk. The same calls always have the same results. The simulation drives it with simulated time.
//   - [Clocked] is a Controller with the machine's clock. It has the methods of an [sbatch.Client].
//   - [Cluster] is a Clocked with processes.
//
// The package has no commands: package sbatch tests its parsers with recorded outputs of the real ones, and
// on the real cluster.
//
// An option of sbatch that the package does not model panics, so that no caller mistakes the result for an
// answer of Slurm.
//
// Messages, states and reasons are those of Slurm 22.05.8, 24.11.5 and 26.05.5.
package slurmtest
