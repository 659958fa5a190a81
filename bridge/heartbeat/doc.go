// Package heartbeat tells operators what a bridge does.
//
// A ledger in a file can be read on its own host only. So a running bridge publishes its [Status] in the
// shared directory with each renewal of its lease ([Recorder]): that is its heartbeat. And it explains
// bundles to other hosts ([Ask]).
//
// [Explain] reads a bundle's row and its history from a ledger: its phase with the time and the reason, the
// cause for which it waits, and earlier decisions.
package heartbeat
