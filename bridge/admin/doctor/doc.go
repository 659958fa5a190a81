// Package doctor checks what a bridge needs for its first job. Each [Check] has a finding and advice.
//
// An [Examination] asks the server, Slurm and the disks, and [Jobs] sends a job to each queue.
// Other functions judge the answers. They ask nothing themselves, so that a test needs only a
// line for each mistake:
//
//   - [Server], [Reached], [Login], [Password] and [Group]
//   - [Commands], [Controller], [Accounting], [Queue] and [Tried]
//   - [Shared], [Ledger], [Converter] and [Image]
//   - [Node], for what a job leaves
package doctor
