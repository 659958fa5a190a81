// Package worker runs one prepared bundle, or those of a Pack.
//
// A worker is the batch task of a job. It runs the bundle of a specification on the shared disk
// (package spool); in a pack it runs several, each as below. It uses no network, fetches nothing, and reports in records
// next to the specification:
//
//	read spec.json ─► take the attempt ─► devices, links, binds ─► container ─► (copy) ─► exit.json, bell ─► clean up
//	                        │                                         │
//	                        └────► bell, status.json ◄──── usage, limits ───── background, every second
//
// Background tasks never delay the command. Between the start of the program and the first
// instruction in the container, the worker only flushes one record and sets the container up.
//
// # Promises
//
// If another worker has begun the attempt, or a bridge has fenced it, the worker runs nothing and
// writes nothing. Otherwise it leaves an exit record, unless the worker itself is killed, or the shared disk
// cannot be written for two minutes. It writes
// that as early as possible, because a site may allow only three seconds after TERM. The container
// ends with its worker. Files that the command wrote to its working directory stay unchanged.
//
// A working directory on the node's own disk (spool.WorkingDirLocal) is copied to the shared disk, and
// flushed there, before the exit record is written. Unless the record says otherwise, all results
// are on the shared disk, even if the node or the file server crashes afterwards. After TERM the
// copy ends within ten seconds, and the record reports missing results. The command's output is on
// the shared disk from the start.
//
// # The environment of the command
//
// The command has the image's environment and none of the host's, CODALAB=true, HOME and working
// directory /<uuid>, its dependencies read-only with links to them in the working directory, stdout
// and stderr there, TMPDIR=/<uuid>_tmp on the node's own disk, and the GPUs of the job. CodaLab's
// own worker does the same (codalab/worker/worker_run_state.py: _transition_from_PREPARING,
// codalab/worker/docker_utils.py: start_bundle_container).
package worker
