// Package source parses references to images, and reads the images.
//
// [ParseReference] parses a reference as Docker and Apptainer do. It means an image in a registry, in an
// archive of docker save or in an OCI layout, or a SIF. [Source.Resolve] finds the digest of one
// platform's manifest, with the logins, mirrors and certificates of the site. [Source.Refresh]
// checks the result again with other logins, without counting as a pull. [Source.Open] reads the
// manifest and its configuration, checked against their digests, and blobs at any offset. The error
// for an image that cannot be read or is not supported is an [*ImageError], a sentence.
//
// Package [github.com/cl-slurm/cl-slurm/apptainer] converts images.
//
// # Stores
//
// The kind of a reference decides on its store. The store of a registry first tries its mirrors.
// Each mirror and the registry is an endpoint with its own login and certificates. A broken pull is
// resumed at the same byte. The store of local files reads an OCI layout or an archive. For an
// archive without a manifest, it makes one.
package source
