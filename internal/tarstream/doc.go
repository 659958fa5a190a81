// Package tarstream packs a directory into a tar stream and unpacks one. It also unpacks zip
// archives.
//
// Neither side is trusted: Pack may read the directory of a command that still runs, and
// Unpack may read any user's upload. So all paths go through an os.Root, and the package
// promises:
//
//   - Pack fails, or writes a stream that can be read to its end, even if files grow, shrink or
//     vanish in the meantime.
//   - Unpack writes only inside its root and within its Limits. It never writes through a link
//     or an older file. It makes no set-uid bits, extended attributes or devices, and no
//     directories that their owner could not remove. If it fails, the caller must remove the
//     files that it has written.
//
// The streams have the form of GNU tar in CodaLab's programs: gzip around tar, names that
// begin with "./".
//
// # Cost
//
// The memory does not grow with the stream. Pack holds 3 MiB for each core that it uses, at
// most four, and the names in one directory of each level and of the files that have several
// names. Unpack holds 1.5 MiB, and 20 MiB while it reads the largest headers that it accepts.
// Both keep at most 64 directories open. Streams below 256 KiB use one core.
package tarstream
