// Package apptainer converts container images to SIFs, the single-file format of
// Apptainer.
//
// [Converter.Convert] takes an image that a [source.Source] has resolved, from
// wherever that finds it: the layers are pulled in parallel, flattened, and
// streamed into a squashfs that stands at its place in the SIF from the first
// byte. The files in it depend on the image's digest, its architecture and
// [Converter.Settings] alone; only the SIF's definition names where the image came
// from. What cannot be converted exactly is refused in words, with a
// [*source.ImageError]. [Converter.Pull] brings an image as an OCI layout, to be
// converted elsewhere.
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
