// Package pilot starts workers for the staged bundles of a CodaLab server. A pilot is one such
// worker: a cl-worker that some batch system runs, that asks the server for runs by itself, and that
// ends when it has been idle for a while.
//
// The package has three parts:
//
//   - [Decide] is the arithmetic, pure: what is known of bundles, pilots and the server's workers, to
//     how many pilots to start and why.
//   - [Manager] is the loop around it. A pass asks the server for staged bundles and, where the answer
//     may call for a new pilot, the backend for its pilots and the server for its workers.
//   - [Backend] is the batch system. Package slurmbatch is the one for Slurm.
//
// The manager keeps nothing on a disk. It finds its pilots again by their names, so it may be ended and
// started at any time; pilots do not notice. No answer is never taken for an answer: a manager that
// cannot see its pilots starts none.
//
// The package follows codalab/worker_manager/worker_manager.py of CodaLab.
package pilot
