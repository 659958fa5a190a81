// Package tarstream packs a directory into a tar stream and unpacks one.
//
// Both sides are hostile as a rule: what is packed may be the directory of a
// command that still runs, and what is unpacked comes from anybody. So all
// file names go through an os.Root, which nothing leads out of, and it
// promises:
//
//   - Pack always writes a stream that can be read to its end, also while
//     files grow, shrink and vanish under it, or it fails.
//   - Unpack writes inside its root and nowhere else, within its Limits, never
//     through a link or a file that was there before, and no set-uid bits,
//     extended attributes, devices, or directories that their owner could not
//     remove. What it has written when it fails stays, for the caller to
//     remove.
//
// The streams are those of GNU tar as CodaLab's programs call it: gzip around
// tar, names beginning with "./".
//
// # Cost
//
// Neither needs memory that grows with the stream. Pack holds 3 MiB for each
// core that it uses, of which there are at most four, the names in one
// directory of each level, and the names of the files that have several.
// Unpack holds 1.5 MiB, and 20 MiB while it reads the largest headers that it
// takes. Both keep at most 64 directories open. What is smaller than 256 KiB
// is done on one core.
package tarstream
