// Package transfer keeps account of what is on its way to the shared disk and from it. It
// moves nothing itself: package fetch downloads, package apptainer converts.
//
// A Transfer is one thing that is moved: an image, a dependency, the results of a bundle.
// Any number of bundles may wait for one. A Registry lists the transfers under way and
// decides which proceeds next; it has nothing to do with registries of images. A Pace decides
// how fast. An Item is one of the things that a bundle waits for: it shows the Progress of
// its transfer. Report joins all items of a bundle into the sentence that run_status shows;
// Tell repeats any sentence while work goes on.
// An Error is why a transfer failed, and whether another try may succeed.
package transfer
