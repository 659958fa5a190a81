// Package flatten turns the layers of a container image into the one file
// system that they show, as a tar stream for a program that makes a file system
// of it.
//
// # What the layers show
//
// Exactly what they would show had a container runtime unpacked them one over
// the other (image-spec, layer.md; containerd, pkg/archive/tar.go: applyNaive):
// whiteouts and opaque directories hide what lower layers put there and nothing
// of their own, of several entries for a name the last one stands, a hard link
// shares its target's content also when that is of a lower layer or hidden
// later, and names lead through the symbolic links of lower layers, never out of
// the root.
//
// # In one pass
//
// To know what an entry of a layer comes to takes all layers, and reading them
// twice costs as much again as unpacking them. So a [Flattener] reads them once,
// the highest first, and writes the content of a file as soon as nothing read so
// far hides it, which is nearly always right. With the last layer everything is
// known: the tree is made exactly, and
//
//   - what is missing is written: directories, links, devices, and files that
//     only a hard link shows, for which their layer is read again;
//   - when a file was written that the tree does not show like that, what was
//     written is of no use: [ErrAgain]. The next attempt knows all, and is
//     right.
//
// So prediction costs time at worst, and never decides what is written.
//
// Readers of the stream must take directories after what is in them.
package flatten
