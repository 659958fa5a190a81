// Package status answers an operator's two questions: what the bridge does now, and where a
// bundle is and why. Both answers work whether the bridge runs or not, and change nothing.
//
// [Collect] reads the ledger, the shared disk and the bridge's last heartbeat: whether the
// bridge runs, how many bundles it has in which phase, what holds it up. A running bridge
// writes its heartbeat to a file of its own every ten seconds ([Recorder]), because the ledger
// is for what must last.
//
// [Explain] reads a bundle's row and its history from the ledger: the phase, since when and
// why, what the bundle waits for, and what the bridge decided before.
package status
