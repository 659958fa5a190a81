// Package transfer keeps account of what is on its way to the shared disk and from it.
//
// A Transfer is one thing that is moved: an image, a dependency, the results of a bundle.
// Any number of bundles may wait for one; the Registry has those that are under way.
// A Queue decides which transfer proceeds next, a Pace how fast. An Item is one of the
// things that a bundle waits for: it shows the Progress of its transfer, and Report makes
// of all the bundle's items the sentence that its run_status says. An Error is why a
// transfer failed, and whether another try may succeed.
package transfer
