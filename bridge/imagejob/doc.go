// Package imagejob converts images in short Slurm jobs, for sites that do not allow such work on login
// nodes.
//
// The bridge pulls the layers on the login node, which has a network, to an OCI layout on the shared disk
// ([Puller]). A job then runs `cl-bridge image convert SPEC` ([Run]), which reads them there and needs no
// network. Bridge and job exchange files in a directory for the job, which is next to the layout:
//
//	spec.json       the job's task; written before the job is submitted
//	job.json        the job's id and name; written once they are known
//	progress.json   the progress; written every second
//	image.sif       the SIF, while it grows and after
//	result.json     the job's outcome; written last
//	slurm.out       the job's output
//
// The bridge reads the files, and follows the job in Slurm's snapshots, because a job that was killed
// writes no result. A bridge that was killed leaves its job behind; the next call for the image cancels
// the job.
package imagejob
