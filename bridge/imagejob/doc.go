// Package imagejob has images converted by short Slurm jobs, for sites that do not allow such work
// on login nodes.
//
// The bridge pulls the layers on the login node, which has a network, to an OCI layout on the
// shared disk ([Puller]). A job then runs `cl-bridge image convert SPEC` ([Run]), which reads them
// there and needs no network. The two exchange files in a directory of the job's own, beside the
// layout:
//
//	spec.json       what to do; written before the job is submitted
//	job.json        which job it is; written once that is known
//	progress.json   how far it is, every second
//	image.sif       the SIF, while it grows and after
//	result.json     how it ended; written last
//	slurm.out       what the job printed
//
// The bridge reads the files, and follows the job in Slurm's snapshots, since a job that was
// killed writes no result. A bridge that was killed leaves its job behind; the next call for the
// image cancels it.
package imagejob
