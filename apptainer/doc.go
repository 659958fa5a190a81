// Package apptainer brings container images to a cluster.
//
// [ParseReference] reads a name as Docker and Apptainer do: of an image in a
// registry, in an archive that docker save made, in an OCI layout, or of a SIF.
// [Registry.Resolve] turns it into the digest of one platform's manifest, with
// the logins, mirrors and certificates that the site has, and
// [Converter.Convert] writes
// that image as a SIF, the single-file format of Apptainer: the layers are
// pulled in parallel, flattened, and streamed into a squashfs that stands at
// its place in the SIF from the first byte. The files in it depend on the image's
// digest, its architecture and [Converter.Settings] alone; only the SIF's definition
// names where the image came from. What cannot be converted exactly is refused in
// words, with an [*ImageError].
//
// To run it is the work of [github.com/cl-slurm/cl-slurm/apptainer/container].
//
// # Programs
//
// mksquashfs of squashfs-tools 4.5 or newer reads a tar stream and writes into
// the SIF itself. Where it is older, tar2sqfs (squashfs-tools-ng) reads the
// stream and its file is copied into the SIF; where there is none, the tree is
// unpacked beside the SIF for the mksquashfs there is, which costs its size in
// disk, and file capabilities.
package apptainer
