// Package imagejob has images converted by short Slurm jobs, for sites whose
// login nodes are not for such work.
//
// The layers are pulled on the login node, where there is a network, to an OCI
// layout on the shared disk ([Puller]). A job then runs
// `cl-bridge image convert SPEC` ([Run]), which reads them there and needs no network.
// The two exchange files in a directory of the job's own, beside the layout:
//
//	spec.json       what to do; written before the job is submitted
//	job.json        which job it is; written once that is known
//	progress.json   how far it is, every second
//	image.sif       the SIF, while it grows and after
//	result.json     how it ended; written last
//	slurm.out       what the job printed
//
// Whoever waits looks at the files, and asks Slurm now and then whether there
// is still a job to wait for: one that was killed writes no result. A bridge that
// was killed leaves a job that nobody waits for, which the next one that wants the
// image cancels.
package imagejob
