// Package draft drafts a bridge's configuration from what Slurm says of its
// partitions and accounts.
//
// [Survey] finds the partitions that a user may use and makes a [Queue] of each. A
// [Draft] holds the queues that were chosen and the answers to init's questions;
// [Draft.Text] is its file, with a comment for each key. This package asks only
// Slurm; package setup asks the operator, and writes the file.
package draft
