// Package energy tells the server the energy of the runs whose jobs have ended, where Slurm measures it.
//
// Slurm's accounting database knows the energy of a job seconds after its end. The bundle has its verdict by then, and
// takes no more reports, so that the energy goes to the server by a request of its own. Nobody asks the controller: sstat,
// which knows the energy of a running job, costs it a request for each job (Slurm src/sstat/sstat.c: slurm_load_job).
//
//	a decision ends an attempt ──► Note ──► Pass: the bundle's charges in the ledger
//	                                          ──► one sacct for up to a hundred bundles
//	                                          ──► one request to the server for each queue
//
// The server gets the sum over all attempts of a bundle, so that a repetition is harmless, and the Watch keeps nothing
// on a disk: after a start it tells the energy of the bundles that ended within a day once more.
package energy
