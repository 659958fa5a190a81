// Package apptainer converts container images to SIFs, the single-file format of
// Apptainer.
//
// [Converter.Convert] takes an image that a [source.Source] has resolved. It pulls the layers in
// parallel, flattens them, and streams the result into a squashfs that is written directly into the
// SIF. The files in the SIF depend only on the image's digest, its architecture and
// [Converter.Settings]. The SIF's definition also names the image's source. Convert refuses an
// image that it cannot convert exactly, with a [*source.ImageError]. [Converter.Pull] writes an
// image as an OCI layout, which another process can convert.
//
// Package [github.com/cl-slurm/cl-slurm/apptainer/container] runs SIFs.
//
// # Programs
//
// mksquashfs of squashfs-tools 4.5 or newer reads a tar stream and writes into the SIF itself. If
// it is older or missing, tar2sqfs (squashfs-tools-ng) reads the stream, and its output is copied
// into the SIF.
package apptainer
