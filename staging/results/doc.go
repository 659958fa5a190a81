// Package results collects the results in a bundle's run directory, and finds them on the shared
// disk for later bundles.
//
// A Collector collects results in one of three ways. It sends them to the server as one stream,
// without a copy on any disk; tiny results of several runs go in one request, from memory. Or it keeps them on the shared
// disk, by one rename, and sends the server their listing. Or it moves them into the server's Store, if the server shares
// its disk. Each may be repeated at any time, even after a crash between any two steps.
//
// FindKeptResults and Store.Dependency find the results for bundles that depend on them.
package results
