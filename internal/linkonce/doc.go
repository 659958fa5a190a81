// Package linkonce settles which of many records stands at a path: among any
// number of processes on any number of hosts of one shared disk, the record of
// one becomes the file's content, once, for ever. Each of them learns which
// one stands, or that it does not know.
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
// What link answers says nothing: one that was done may be answered by an
// error, or by EEXIST when its lost answer was asked for again. The content
// decides, because each record is of one process only.
//
// The directory is flushed before the content is believed, so that no crash
// of the file server takes back what somebody acted upon. It is read again
// after that, because a crash between a first reading and the flush leaves
// nothing to flush.
//
// While this does not end in a belief it is done again, with the same record:
// a link that seemed to fail may have been done, or may still be on its way.
// Any temporary with that record serves. One that somebody removed is written
// anew; one that a crash or a lost answer leaves behind has no meaning.
//
// A process may stop at any point, for an hour or for ever. Before its link
// nothing has happened; after it, its record may stand although nobody acts
// for it.
//
// # What is assumed of the disk
//
//   - link(2) is done at once or not at all, and never replaces a file.
//   - Who opens a file that was flushed and closed before it was linked sees
//     it whole (NFS: close-to-open). A name that was looked for in vain may be
//     shown late, and any call may fail with or without its effect.
//   - After a directory was flushed, a crash of the file server takes back no
//     entry that was seen in it before. An NFS client's flush of a directory
//     does nothing: there it is the server that answers to a change of a
//     directory only when the change will last (its export is not async), and
//     the client that asks until it has an answer (its mount is hard).
//   - While one process settles a path, the file server crashes at most once.
//   - Nobody removes, renames or writes the file at the path.
package linkonce
