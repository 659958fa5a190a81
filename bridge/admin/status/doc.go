// Package status shows operators a bridge as a whole (cl-bridge status) and a single bundle (cl-bridge
// explain). Both work whether the bridge runs or not, and change nothing.
//
// [Collect] reads the ledger, the shared disk and the bridge's last heartbeat. The status says whether the
// bridge runs, counts its bundles by phase, and names the causes that hold it up. On a host that cannot read
// the ledger's file Collect returns the status that the bridge has published with its heartbeat.
package status
