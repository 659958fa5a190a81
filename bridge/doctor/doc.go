// Package doctor checks what a bridge needs for its first job. Each [Check] says what was
// found, and what to do about it.
//
// Asking and judging are apart. An [Examination] asks the server, Slurm and the disks, and
// [Jobs] sends a job to each queue. The functions that judge the answers ask nobody, so
// that a test has a line for each mistake:
//
//   - [Server], [Reached], [Login], [Password] and [Group]
//   - [Commands], [Controller], [Accounting], [Queue] and [Tried]
//   - [Shared], [Ledger], [Converter] and [Image]
//   - [Node], for what a job leaves
package doctor
