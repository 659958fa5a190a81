// Package inputs finds the dependencies of bundles on the shared disk, or brings them there
// before the bundles' jobs exist.
//
// A dependency is, in this order, kept results on this cluster, results in the server's own store,
// the data of a link (Links), or a download in the cache. Data that is used in place gets a
// fingerprint, so that the researcher learns of changes.
package inputs
