// Package probe says what a compute node has for running bundles, and whether
// it and a login node see one disk.
//
// # A meeting
//
// A login node and a job on a compute node meet in a directory that the login
// node has made on the disk that both are said to share:
//
//	login node                            job
//	Call: makes asked ─────────────────►  Attend: reads asked, settles started,
//	Hear: report.json, settles started ◄─ writes report.json
//	RoundTrip: makes ping ─────────────►  … sees ping,
//	           sees pong ◄──────────────  makes pong
//
// What the job read in asked it repeats in its report: so both directions are
// proven. Both settle the same record as for the start of a bundle (package
// linkonce), and have to find the job's. The time from ping to pong is measured
// by one clock, and is not below what either direction takes: until the one sees
// what the other wrote, as often as it looks.
package probe
