// Package fetch fetches one target of a CodaLab server, a file or a directory, to a path on
// this machine, over connections that break and through restarts of the program.
//
// A target for which To returns nil is whole: every file has as many bytes as the server
// says, or came in an archive whose checksum is right. To may be called again on what an
// earlier call left when it failed or was killed, by this program or another one, and goes
// on from there.
//
// # A file
//
// To asks for the file as one stream. If that breaks off, To asks for the rest by ranges. A
// server or proxy that does not know ranges answers one with the file from its beginning;
// so a range counts only if its answer ends where it should. A range is small, so that a
// broken connection costs little, and so that a server that holds a range in memory copes.
//
// # A directory
//
// A directory comes as one archive, of which no ranges can be asked for. If that breaks
// off, To lists the directory and fetches what is missing: directories of which nothing is
// there as archives, and single files by themselves. A listing says less than an archive: a
// file that was fetched by itself has the time of its download, and files that shared their
// content by a hard link may each have their own. So To asks for the whole archive once
// more if that costs no more. If the server gives no listing, or one that contradicts what
// was unpacked or cannot name a file (JSON has no name that is not UTF-8), To uses nothing
// of it and begins anew.
//
// # The journal
//
// The directory of the path belongs to this package while To runs. There it keeps a file
// "journal" with a line for each file that is whole, written when the file has been closed,
// and for each part of a large file, written when that part has been flushed. What the
// journal does not name was not fetched. It counts only until the machine is started again,
// as that may lose files that were not flushed. To removes it before it returns nil.
package fetch
