// Package status says how a bridge stands: whether it runs, how many bundles it has in
// which phase, what holds it up, and how much room the shared disk has.
//
// A running bridge writes its heartbeat to a file of its own every ten seconds
// ([Recorder]), because the ledger is for what must last. [Collect] reads that file, the
// ledger and the disk, and changes nothing.
package status
