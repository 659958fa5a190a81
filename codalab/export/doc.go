// Package export writes a worksheet and its bundles as one ZIP archive, and reads one. It calls the REST API alone, so that it
// works on CodaLab's own server, too.
//
//	contents/UUID/…          the files of a bundle; one that is a single file has it here under its name
//	worksheet.json           the worksheet, its items and its bundles: a Description
//	worksheet.md             the lines that people edit (cl print -r)
//	ro-crate-metadata.json   where the bundles came from (package provenance)
//	index.html               a page for people that opens from the disk
//	manifest-sha256.txt      the digests of all other files, in the form of sha256sum; the last entry
//
// # Writing
//
// Write streams: it holds neither a file nor a bundle in memory, and writes no temporary files. For each file it needs up
// to 3 kB for the ZIP's directory and the manifest. Symbolic links are stored as links, and never followed. A hard
// link becomes a copy, which is read once the bundle's other files are there, because a ZIP has none. Pipes and devices are left out. All times are those of the server's data, so that
// the same worksheet gives the same bytes.
//
// The page loads nothing but pictures of the archive. It has no script unless the worksheet has formulas: then KaTeX is in it,
// which writes MathML, and the page's Content-Security-Policy names the digest of this one script.
//
// # Reading
//
// An archive may come from anybody. Open refuses names that lead out of the archive, that are there twice or that pass
// through a file or a link, entries that share bytes, and an archive whose manifest does not name exactly its files. Verify
// compares all digests. No entry is read beyond the size that the directory states, and Size is the sum of these, so that
// a caller can compare it with a quota first. Nothing is unpacked on the disk.
package export
