// Package status answers an operator's two questions: what the bridge does now, and where a
// bundle is and why. Both answers work whether the bridge runs or not, and change nothing.
//
// [Collect] reads the ledger, the shared disk and the bridge's last heartbeat: whether the
// bridge runs, how many bundles it has in which phase, what holds it up. [Explain] reads a bundle's
// row and its history from the ledger: the phase, since when and why, what the bundle waits for,
// and what the bridge decided before.
//
// A ledger in a file can be read on its own host only. So a running bridge publishes its status in
// the shared directory, with each renewal of its lease ([Recorder]), which is also its heartbeat:
// on another host Collect returns that. And the bridge explains bundles to other hosts ([Ask]).
package status
