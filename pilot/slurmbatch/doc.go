// Package slurmbatch runs pilots in Slurm jobs: one job for each, of one task on one node.
//
// A job's name is its pilot's: <user>-<job name>-<32 hexadecimal digits>. The batch script replaces itself by
// the worker (exec), so that the worker itself gets TERM: from scancel, and a minute or two before the time
// limit. Neither the script nor the job's environment has a secret in it. The worker gets the path of a
// file: one with a token of its own if server and worker support those, else one with the password.
//
// The files of a pilot are in a directory of its name in the work directory: its log, a copy of its script,
// the number of its job, and its token. The backend renews the token of a job that waits for long. It revokes
// and removes the token after the end of the job.
//
// The package follows codalab/worker_manager/slurm_batch_worker_manager.py of CodaLab.
package slurmbatch
