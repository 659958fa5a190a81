// Package fetch brings one target of a CodaLab server, a file or a directory,
// to a path on this machine, over connections that break and through restarts
// of the program.
//
// What To returns nil for is whole: every file has as many bytes as the server
// says, or came in an archive whose checksum is right. To may be called again
// on what an earlier call left when it failed or was killed, by this program or
// another one, and then goes on where that stopped.
//
// # A file
//
// It is asked for as one stream. When that breaks off, the rest is asked for by
// ranges. A server or proxy that does not know ranges answers one with the file
// from its beginning; so a range counts only when its answer ends where it
// should, and it is small, so that little is lost with a connection, and so that
// a server that holds a whole range in memory does not fall over.
//
// # A directory
//
// It comes as one archive, which knows no ranges. When that breaks off, the
// directory is listed and what is missing is fetched: directories of which
// nothing is there as archives, single files by themselves. A listing does not
// hold all that an archive does: a file that was fetched by itself has the time
// of its download, and files that shared their content by a hard link may each
// have their own. So the archive is asked for once more where that costs no
// more. Where the listing cannot be had, contradicts what was unpacked, or cannot
// name a file (JSON has no name that is not UTF-8), nothing of it is used, and
// the download begins anew.
//
// # The journal
//
// The directory of the path is this package's own while To runs. There it keeps
// a file "journal" with a line for each file that is whole, written when the file
// has been closed, and for each part of a large file, written when that part has
// been flushed. What the journal does not say was not fetched. It counts only
// until the machine is started again, as files that are not flushed may be lost
// by that; To removes it before it returns nil.
package fetch
