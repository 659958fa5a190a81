// Package linkonce lets processes agree on one record at a path. Any number of processes
// on any number of hosts of one shared disk each offer a record. One of these records
// becomes the content of the file, for ever. It is called the standing record. Each
// process learns the standing record, or that it cannot know it.
//
//	process                                  file server
//	write .name.tmp-x, flush it
//	link .name.tmp-x → name ──────────────►  the first link wins
//	        (whatever the answer) ◄────────
//	read name ◄────────────────────────────  the standing record
//	flush the directory ──────────────────►  it survives a crash
//	read name ◄────────────────────────────  the same record: believe it
//	remove .name.tmp-x
//
// # Reasons
//
// The answer of link proves nothing: the server may answer a successful link with an
// error, or with EEXIST when the client repeats a call whose answer was lost. The content
// decides, because each record belongs to one process.
//
// A process flushes the directory before it believes the content, so that a crash of the
// file server cannot undo a record on which a process has acted. It reads again after the
// flush, because a crash between the first reading and the flush leaves nothing to flush.
//
// While a process does not know the standing record, it tries again with the same record:
// a link that failed by its answer may have succeeded, or may still arrive. Any temporary
// file with that record serves. A process writes a new one if the first was removed. A
// temporary file that a crash or a lost answer leaves has no meaning.
//
// A process may stop at any point, for an hour or for ever. Before its link nothing has
// happened; after it, its record may stand although no process acts on it.
//
// # Assumptions about the disk
//
//   - link(2) is done at once or not at all, and never replaces a file.
//   - A process that opens a file that was flushed and closed before it was linked
//     sees it whole (NFS: close-to-open). After a failed look-up of a name, the name may
//     appear late, and any call may fail with or without its effect.
//   - After a directory was flushed, a crash of the file server removes no
//     entry that was seen in it before. An NFS client's flush of a directory
//     does nothing. There the server must answer a change of a directory only
//     after it is durable (its export is not async), and the client must repeat
//     the call until it has an answer (its mount is hard).
//   - While one process settles a path, the file server crashes at most once.
//   - Nobody removes, renames or writes the file at the path.
package linkonce
