// Package staging brings what a bundle needs to the shared disk before its job exists, and
// delivers its results after its end, so that no allocation is held for a download or an
// upload. Both may be repeated at any time: what is on the disk already is found at once.
//
// Its packages, none of which imports one below it in this list:
//
//	sitepath      paths on the cluster's disks that bundles name: resolved, or refused
//	transfer      the downloads under way, their order, pace and progress; why one failed
//	results       results go to the server, or stay on the shared disk, and are found there
//	images        an image becomes a SIF in the cache, or is used where it lies
//	engineimages  an image comes into the store of Docker or Podman
//	fetch         one target of the server to a path, through breaks and restarts
//	inputs        a dependency is found where it lies, or downloaded to the cache
//
// The Stager joins images and inputs.
package staging
