// Package tarstream packs a directory into a tar stream and unpacks one. It also unpacks zip
// archives.
//
// Neither side can be trusted: Pack may read the directory of a command that still runs, and
// Unpack reads what any user sent. So all paths go through an os.Root, and it promises:
//
//   - Pack writes a stream that can be read to its end, also while files grow, shrink and
//     vanish under it, or it fails.
//   - Unpack writes inside its root and nowhere else, within its Limits, never through a link
//     or a file that was there before, and no set-uid bits, extended attributes, devices, or
//     directories that their owner could not remove. If it fails, what it has written stays
//     for the caller to remove.
//
// The streams are those of GNU tar as CodaLab's programs call it: gzip around tar, names that
// begin with "./".
//
// # Cost
//
// The memory that they need does not grow with the stream. Pack holds 3 MiB for each core
// that it uses, at most four, and the names in one directory of each level and of the files
// that have several names. Unpack holds 1.5 MiB, and 20 MiB while it reads the largest
// headers that it accepts. Both keep at most 64 directories open. Streams below 256 KiB are
// done on one core.
package tarstream
