// Package sharedfiles looks after the bridge's own files on the shared disk. It installs the
// programs that jobs run, and sweeps.
//
// # Sweep
//
// A bridge removes a bundle's files itself, a while after the server has its verdict. Some files stay behind
// after a crash, after the ledger was restored from an old copy, or if a writer came too late. A Sweeper finds
// the files that no bundle and no job needs, with a reason for each, and removes them.
//
// # What is kept
//
//   - Everything of a bundle that has a row in the ledger, in any phase.
//   - Everything of a bundle or a submission for which Slurm shows a job. A task of an array is a job of
//     the bundle that the array's list of members has in its place, and a pack one of all its members. While such a job of
//     this bridge lives whose list is gone, no bundle's files are removed.
//   - Files that were changed within the grace, by the disk's own clock; no other clock counts. An
//     attempt whose worker is cut off from Slurm still writes its status.
//   - Files of another bridge, and files that do not say which bridge made them.
//   - Workers' programs while a job may have been submitted with them.
//   - Everything, if the disk, Slurm or the ledger does not answer, or if a job is newer than the
//     ledger.
//
// # Beside a bridge
//
// A bridge may take up a bundle at any moment, even one that is being swept. So the sweep asks
// Slurm first, then the ledger, then the disk. A job that Slurm's answer misses has a row in the
// ledger, because a row is saved before its effects run. The sweep puts unneeded files aside, under
// other names, and reads the ledger once more. A row that exists by then gets its files back; a
// later row makes its own. Only then does the sweep remove anything.
//
//	Slurm ─► ledger ─► disk ─► put aside ─► ledger ─┬─ no row: remove
//	                                                └─ a row: put back
//
// If a sweep dies, the next one puts back what has a row, and removes the rest.
//
// # Cost
//
// A sweep lists runs/ and spool/, which have a directory for each bundle, and asks the disk nothing else
// about bundles that are needed. The names of attempts say which bridge made them.
package sharedfiles
