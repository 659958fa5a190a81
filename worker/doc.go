// Package worker runs one prepared bundle, and nothing else.
//
// A worker is the batch task of a job. It is told what to run by a
// specification on the shared disk (package spool), talks to nobody, fetches
// nothing, and says how it went in records beside the specification:
//
//	read spec.json ─► take the attempt ─► devices, links, binds ─► container ─► (copy) ─► exit.json, bell ─► clean up
//	                        │                                         │
//	                        └────► bell, status.json ◄──── usage, limits ──────── aside, every second
//
// What is aside never delays the command: the way from the start of the
// program to the first instruction in the container is one flushed record and
// the container's own set-up.
//
// # What is promised
//
// An attempt that another worker has begun, or that a bridge has closed, is
// left alone: nothing is run, nothing is written. Of an attempt that is this
// worker's an exit record is left whatever happens, but for the death of the
// worker itself, and as early as can be: after TERM a site may leave as little
// as three seconds. With the worker dies its container, by whatever cause.
// What the command has written to its working directory stays as it is.
//
// A working directory on the node's own disk (spool.WorkDirLocal) is copied to
// the shared one, and flushed there, before the exit record is written: where
// there is a record that says nothing else, the results are all there, also
// after a crash of the node or the file server. After TERM the copy ends
// within Worker.CopyGrace, and the record says what is missing. What the
// command prints is on the shared disk from the start.
//
// # What the command sees
//
// The image's environment and none of the host's, CODALAB=true, HOME and
// working directory /<uuid>, its dependencies read-only with links to them
// from the working directory, stdout and stderr there, TMPDIR=/<uuid>_tmp on the
// node's own disk, and those GPUs that the job was given. This is what CodaLab's own worker does
// (codalab/worker/worker_run_state.py: _transition_from_PREPARING,
// codalab/worker/docker_utils.py: start_bundle_container), without a
// container engine.
package worker
