// Package engineimages brings images into the store of an engine, Docker or Podman, for runs whose
// containers that engine runs. It makes no SIF.
//
// Like CodaLab's own worker, Images pulls at each request, because a tag may have moved. If the
// pull fails, it uses an image that the engine already has (codalab/worker/image_manager.py: get).
// Bundles that want the same image share one pull.
//
// The engine's store may have foreign images, which this package has not brought. A small file
// records the images that it has brought, and the holders that need them. If there are too many,
// only these images are removed, the least recently used first, and never by force: an image stays
// if it has a container, or a reference that this package did not give it.
//
// All workers of one user that use an engine from one host share one such file, which outlives
// them: a worker may use and remove an image that another has brought. A worker changes the file
// only while it holds the file's lock. Each holder has a home, by which a worker finds out whether
// the holder is over.
package engineimages
