// Package slurmbatch runs pilots in Slurm jobs: one job for each, of one task on one node.
//
// A job's name is its pilot's: <user>-<job name>-<32 hexadecimal digits>. The batch script gives way
// to the worker (exec), so that the worker itself gets TERM: from scancel, and a minute or two before
// the time limit. Neither the script nor the job's environment has a secret in it; the worker is
// told the path of a file: of one with a token of its own where server and worker know those, else of one
// with the password.
//
// The files of a pilot are in a directory of its name in the work directory: its log, a copy of its
// script, the number of its job, and its token. The token is renewed while the job waits for long, and revoked and
// removed when it has ended.
//
// The package follows codalab/worker_manager/slurm_batch_worker_manager.py of CodaLab.
package slurmbatch
