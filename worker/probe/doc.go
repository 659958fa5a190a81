// Package probe tests whether a compute node can run bundles, and whether it shares a disk with a
// login node.
//
// # A meeting
//
// A login node and a job on a compute node meet in a directory. The login node makes it on the disk
// that both are supposed to share:
//
//	login node                            job
//	Call: makes asked, locks two files ►  Attend: reads asked, settles started, asks for the locks,
//	Hear: replaces a file by rename ───►  reads that file again and again,
//	… report.json, settles started ◄────  writes report.json
//	RoundTrip: makes ping ─────────────►  … sees ping,
//	           sees pong ◄──────────────  makes pong, with its time
//
// The job's report repeats the content of asked, which proves that the disk works in both
// directions. Both sides settle one record, as at the start of a bundle (package linkonce), and
// both must find the job's. The login node measures the time from ping to pong by its own clock, so
// each direction takes at most that long. The node's time lies between those of ping and pong by the login node's
// clock (package clocks).
//
// # Facts and checks
//
// [Look] tries what it takes to run a container, and [Examiner.Examine] the rest. The checks judge what they found, and
// ask nothing: cl-worker prints them on the node, and cl-bridge doctor on the login node.
package probe
