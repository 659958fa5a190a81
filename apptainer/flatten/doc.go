// Package flatten turns the layers of a container image into the one file
// system that they show, as a tar stream for a program that makes a file system
// of it.
//
// # What the layers show
//
// The result is exactly what a container runtime would show after unpacking the
// layers one over the other (image-spec, layer.md; containerd, pkg/archive/tar.go:
// applyNaive). Whiteouts and opaque directories hide what lower layers put there,
// and nothing of their own layer. Of several entries for a name the last one counts.
// A hard link shares its target's content, even if the target is in a lower layer
// or is hidden later. Names lead through the symbolic links of lower layers, and
// never out of the root.
//
// # In one pass
//
// What an entry of a layer becomes depends on all layers, and reading them twice
// costs as much again as unpacking them. So a [Flattener] reads the layers once,
// the highest first, and writes a file's content as soon as nothing read so far
// hides it. That prediction is nearly always right. After the last layer the
// Flattener builds the exact tree, and
//
//   - writes what is missing: directories, links, devices, and files that only a
//     hard link shows, for which it reads their layer again;
//   - or returns [ErrAgain] when the tree does not show a file that was written.
//     Nothing written so far can be used; the next attempt needs no prediction.
//
// So prediction saves time, and never decides what the result is.
//
// Readers of the stream must accept a directory after the files in it.
package flatten
