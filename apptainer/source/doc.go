// Package source says what an image is named and reads it from where it lies.
//
// [ParseReference] reads a name as Docker and Apptainer do: of an image in a
// registry, in an archive that docker save made, in an OCI layout, or of a SIF.
// [Source.Resolve] turns it into the digest of one platform's manifest, with the
// logins, mirrors and certificates that the site has; [Source.Refresh] asks again,
// with the logins of who asks, without counting as a pull. [Source.Open] reads that
// manifest and its configuration, checked against their digests, and blobs from
// any byte on. What cannot be had or is not handled is told in words, with an
// [*ImageError].
//
// What is made of an image is the work of
// [github.com/cl-slurm/cl-slurm/apptainer].
//
// # Where images lie
//
// A reference's kind decides on a store: of a registry, which asks its mirrors
// first and each of these places with its own login, certificates and patience; or
// of local files, an OCI layout or an archive, of which a manifest is made where it
// has none. A pull from a registry that breaks off is gone on with where it broke.
package source
