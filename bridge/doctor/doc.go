// Package doctor tries what the first job of a bridge needs, and says of each
// thing what was found and what to do.
//
// Asking and judging are apart. What a server, Slurm, a disk and a node answer is
// judged by functions that ask nobody: [Server], [Reached], [Login], [Group], [Commands], [Queue],
// [Refused], [Shared] and [Node], so that each mistake is a line of a test. The
// one thing that is asked here is a job for each queue ([Jobs]); the rest is asked
// by who wires, in cmd/cl-bridge.
package doctor
