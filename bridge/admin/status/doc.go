// Package status answers an operator's two questions: what the bridge does now, and where a bundle is
// and why. Both answers work whether the bridge runs or not, and change nothing.
//
// [Collect] reads the ledger, the shared disk and the bridge's last heartbeat. It says whether the bridge
// runs, how many bundles it has in which phase, and what holds it up. On a host that cannot read the
// ledger's file it returns what the bridge has published with its heartbeat.
package status
