// Package staging brings a bundle's inputs to the shared disk before its job exists, and collects
// its results after its end, so that no allocation waits for a download or an upload. Both may be
// repeated at any time: data that is already on the disk is found immediately.
//
// Its packages; none imports one below it in this list:
//
//	sitepath      paths on the cluster's disks that bundles name: resolved, or refused
//	transfer      the current transfers, their order, pace and progress; errors
//	results       results go to the server, or stay on the shared disk, where later runs find them
//	images        an image is converted to a SIF in the cache, or is used in place
//	engineimages  an image comes into the store of Docker or Podman
//	fetch         one target of the server to a path, despite broken connections and restarts
//	inputs        a dependency is found on the shared disk, or downloaded to the cache
//
// The Stager joins images and inputs.
package staging
