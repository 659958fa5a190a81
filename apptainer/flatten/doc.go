// Package flatten turns the layers of a container image into their common file system, as a tar
// stream for a program that makes a file system image.
//
// # The result
//
// The result is exactly the tree that a container runtime has after unpacking the layers one over
// the other (image-spec, layer.md; containerd, pkg/archive/tar.go: applyNaive). Whiteouts and
// opaque directories hide entries of lower layers, but none of their own layer. Of several entries
// for a name the last one counts. A hard link shares its target's content, even if the target is in
// a lower layer or is hidden later. Names lead through the symbolic links of lower layers, and
// never out of the root.
//
// # In one pass
//
// The effect of an entry depends on all layers, and reading them twice would double the cost of
// unpacking. So a [Flattener] reads the layers once, the highest first, and writes a file's content
// immediately if no entry that was read so far hides it. This prediction is nearly always right.
// After the last layer the Flattener builds the exact tree, and
//
//   - writes the missing entries: directories, links, devices, and files that
//     are visible only by a hard link, for which it reads their layer again;
//   - or returns [ErrAgain] if a written file is not visible in the tree. The
//     output is then unusable, and the next attempt needs no prediction.
//
// So the prediction only saves time, and never affects the result.
//
// Readers of the stream must accept a directory after its files.
package flatten
