// Package workdir finds and removes the directories of stand-alone workers. Any number of workers of one user,
// on any hosts, share a work directory:
//
//	WORKDIR/cache/          dependencies, of all workers
//	WORKDIR/images/         SIFs, of all workers
//	WORKDIR/workers/<id>/   the records and working directories of one worker's runs
//
// The ledger and the jobs of a worker are on a disk of its host: in WORKDIR/workers/<id>/ if that is one, else
// in the directory of the user's state, else below /var/tmp. A worker has its ledger locked from [Search.Find]
// until [Dirs.Release].
package workdir
