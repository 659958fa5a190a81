// Package linkonce settles which of many records stands at a path. Any number of
// processes on any number of hosts of one shared disk each offer a record. The record
// of one becomes the content of the file, once and for ever. Each process learns
// which record stands, or that it does not know.
//
//	process                                  file server
//	write .name.tmp-x, flush it
//	link .name.tmp-x → name ──────────────►  the first link wins
//	        (whatever the answer) ◄────────
//	read name ◄────────────────────────────  the record that stands
//	flush the directory ──────────────────►  … and will after a crash
//	read name ◄────────────────────────────  the same record: believe it
//	remove .name.tmp-x
//
// # Why so
//
// The answer of link proves nothing: a link that was done may be answered by an
// error, or by EEXIST when the client repeats a call whose answer was lost. The
// content decides, because each record is of one process only.
//
// A process flushes the directory before it believes the content, so that no crash
// of the file server takes back what a process acted upon. It reads again
// after that, because a crash between the first reading and the flush leaves
// nothing to flush.
//
// While a process does not know what stands, it tries again with the same record:
// a link that seemed to fail may have been done, or may still be on its way.
// Any temporary with that record serves. A process writes a new one if the
// first was removed; one that a crash or a lost answer leaves behind has no meaning.
//
// A process may stop at any point, for an hour or for ever. Before its link
// nothing has happened; after it, its record may stand although nobody acts
// for it.
//
// # What is assumed of the disk
//
//   - link(2) is done at once or not at all, and never replaces a file.
//   - A process that opens a file that was flushed and closed before it was linked
//     sees it whole (NFS: close-to-open). A name that was looked for in vain may be
//     shown late, and any call may fail with or without its effect.
//   - After a directory was flushed, a crash of the file server takes back no
//     entry that was seen in it before. An NFS client's flush of a directory
//     does nothing: there it is the server that answers to a change of a
//     directory only when the change will last (its export is not async), and
//     the client that asks until it has an answer (its mount is hard).
//   - While one process settles a path, the file server crashes at most once.
//   - Nobody removes, renames or writes the file at the path.
package linkonce
