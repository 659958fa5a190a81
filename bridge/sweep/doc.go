// Package sweep removes from the shared disk what no bundle and no job needs any
// more.
//
// A bridge removes a bundle's files itself, a while after the server has its
// result. What is left behind all the same is what a crash, a ledger that was
// put back from an old copy, or a writer that came too late has left: this
// package finds it, says why it is not needed, and removes it.
//
// # What is kept
//
//   - Everything of a bundle that has a row in the ledger, whatever its phase.
//   - Everything of a bundle or a submission of which Slurm shows a job.
//   - What was changed within the grace, by the disk's own clock: no other clock
//     is asked. An attempt whose worker is cut off from Slurm still writes its
//     status.
//   - What another bridge made, and of which nothing says who made it.
//   - Workers' programs while a job may have been submitted with them.
//   - All of it, when the disk, Slurm or the ledger does not answer, and when a
//     job is newer than the ledger.
//
// # Beside a bridge
//
// A bridge may take up a bundle at any moment, the one that is just being swept
// too. Slurm is asked first, then the ledger, then the disk: a job that the
// answer of Slurm misses has a row in the ledger, because rows are saved before
// anything is done for them. What is not needed then is put aside under another
// name, at once, and the ledger is read once more: a row that it has by now gets
// its files back, and a row that comes later makes its own. Only then is anything
// removed.
//
//	Slurm ─► ledger ─► disk ─► put aside ─► ledger ─┬─ no row: remove
//	                                                └─ a row: put back
//
// A sweep that dies leaves what it had put aside; the next one puts it back where
// there is a row, and removes it where there is none.
package sweep
