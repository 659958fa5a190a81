// Package apptainer converts container images to SIFs, the single-file format of
// Apptainer.
//
// [Converter.Convert] takes an image that a [source.Source] has resolved. It pulls
// the layers in parallel, flattens them, and streams the result into a squashfs
// that is written in place inside the SIF. The files in the SIF depend only on the
// image's digest, its architecture and [Converter.Settings]; the SIF's definition
// also names where the image came from. An image that cannot be converted exactly
// is refused with a [*source.ImageError]. [Converter.Pull] writes an image as an
// OCI layout, to be converted elsewhere.
//
// Package [github.com/cl-slurm/cl-slurm/apptainer/container] runs SIFs.
//
// # Programs
//
// mksquashfs of squashfs-tools 4.5 or newer reads a tar stream and writes into
// the SIF itself. Where it is older, tar2sqfs (squashfs-tools-ng) reads the
// stream and its output is copied into the SIF. Where there is no tar2sqfs, the
// tree is unpacked beside the SIF for the older mksquashfs. That takes disk space
// of the tree's size, and file capabilities are lost.
package apptainer
