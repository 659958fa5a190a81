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
//     through a file that was there before, and no set-uid bits, devices, or
//     directories that their owner could not remove. What it has written when
//     it fails stays, for the caller to remove.
//
// The streams are those of GNU tar as CodaLab's programs call it: gzip around
// tar, names beginning with "./".
package tarstream
