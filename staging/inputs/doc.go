// Package inputs finds the dependencies of bundles on the shared disk, or brings them there
// before the bundles' jobs exist.
//
// A dependency is, in this order, the results of a bundle that are kept here, in the
// server's own store, the data of a link where it lies (Links), or a download in the cache.
// Data that is used in place is fingerprinted, so that the researcher is told if it changes.
package inputs
