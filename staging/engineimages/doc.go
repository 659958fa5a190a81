// Package engineimages brings images into the store of an engine, Docker or Podman, for runs whose
// containers that engine runs. No SIF is made.
//
// As CodaLab's own worker does, Images pulls at each request, because a tag may have moved, and
// falls back to an image that the engine has already (codalab/worker/image_manager.py: get). Bundles
// that want the same image share one pull.
//
// The engine's store may have images of others. A small file says which ones this package has
// brought there, and which holders need them. Only these are removed when there are too many, the
// least recently used first, and never by force: an image with a container or with a name that
// somebody else gave it stays.
//
// All workers of one user that use an engine from one host have one such file, which outlives them: an image
// that one worker has brought may be used and removed by another. A worker changes the file only while it
// holds the file's lock. Each holder has a home, by which a worker judges the holders of others.
package engineimages
