// Package images brings the images of bundles to the shared disk as SIFs, before the
// bundles' jobs exist.
//
// A bundle names an image in one of two ways. A reference, such as python:3.12, names an image in a
// registry or in an archive. Images resolves it to a digest and gets the SIF of that digest from
// the cache. At most one process converts an image, for all bundles that want it. A path that ends
// in .sif names a SIF that is used in place (Files).
//
// An operator can keep an image (Keep): its record is in a Records directory, and its SIF is pinned
// in the cache until the operator releases it. If the registry does not answer, bundles get the
// kept image of that name.
//
// Some images need a login, or come from a file that not all members of the cache's group may read.
// They are neither shown to other members nor given to bundles without that login.
package images
