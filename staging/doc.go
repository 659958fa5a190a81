// Package staging brings what a bundle needs to the shared disk before its
// job exists, and takes what it made away after its end, so that no
// allocation is ever held for a download or an upload.
//
// Results go to the server, or stay on the shared disk, where later bundles see
// them in place, and their listing goes.
//
// It joins three that do not know one another: the CodaLab server, the cache
// and the images. Both directions may be asked for the same again at any
// time; what is there already costs a look.
//
// Data of bundles that are links is not brought in but used where it lies (see
// InPlace).
package staging
