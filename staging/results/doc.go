// Package results delivers what a bundle left in its run directory, and finds it on the
// shared disk again for later bundles.
//
// A Collector delivers results in one of three ways: it sends them to the server as one
// stream, without a copy on any disk; it keeps them on the shared disk, by one rename, and
// sends the server their listing; or it moves them into the server's Store, where the
// server shares its disk. Each may be asked for the same again at any time, after a crash
// between any two steps too.
//
// FindKept and Store.Dependency find the results for bundles that depend on them.
package results
