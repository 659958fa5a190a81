// Package transfer keeps track of the transfers to and from the shared disk. It moves no data
// itself: package fetch downloads, package apptainer converts.
//
// A Transfer is one thing that is moved: an image, a dependency, the results of a bundle. Any
// number of bundles may wait for one. A Registry lists the current transfers and decides their
// order; it has nothing to do with registries of images. A Pace limits their speed. An Item is one
// thing that a bundle waits for, with the Progress of its transfer. Report joins all items of a
// bundle into the sentence of run_status. Tell repeats any sentence during work. An Error has the
// reason why a transfer failed, and whether another try may succeed.
package transfer
