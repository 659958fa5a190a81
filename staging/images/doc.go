// Package images brings the images of bundles to the shared disk as SIFs, before the
// bundles' jobs exist.
//
// A bundle names an image in one of two ways. A reference, such as python:3.12, stands for
// an image in a registry or in an archive: Images resolves it to a digest and has the
// cache's SIF of that digest, converted by at most one process for all bundles that want
// it. A path that ends in .sif means a SIF that is used where it lies (Files).
//
// An operator can keep an image (Keep): its record lies in a Records directory, and its SIF
// is pinned in the cache until it is released. If the registry cannot be asked, bundles get
// the image that is kept by its name.
//
// Images that took a login, or come from a file that not all members of the cache's group
// may read, are neither shown to other members nor given to bundles without that login.
package images
