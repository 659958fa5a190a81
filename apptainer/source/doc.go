// Package source reads references to images, and the images from where they lie.
//
// [ParseReference] reads a name as Docker and Apptainer do: of an image in a
// registry, in an archive that docker save made, in an OCI layout, or of a SIF.
// [Source.Resolve] finds the digest of one platform's manifest, with the logins,
// mirrors and certificates of the site. [Source.Refresh] checks that again with other
// logins, without counting as a pull. [Source.Open] reads the manifest and its
// configuration, checked against their digests, and blobs at any offset. An image
// that cannot be read or is not handled is an [*ImageError], in words.
//
// Package [github.com/cl-slurm/cl-slurm/apptainer] converts images.
//
// # Where images lie
//
// A reference's kind decides on a store. The store of a registry tries its mirrors
// first; each mirror and the registry is an endpoint with its own login and
// certificates. A pull that breaks off is resumed where it broke. The store of local
// files reads an OCI layout or an archive; where an archive has no manifest, one is
// made.
package source
