// Package fetch fetches one target of a CodaLab server, a file or a directory, to a path on this
// machine. It continues after broken connections and restarts of the program.
//
// If To returns nil, the target is complete: every file has the size that the server names, or came
// in an archive with a correct checksum. After To failed or was killed, a later call, in this
// program or another one, continues from its files.
//
// # A file
//
// To asks for the file as one stream. If that breaks off, To asks for the rest by ranges. A server
// or proxy without ranges answers with the file from its beginning, so a range counts only if its
// answer has the right length. Ranges are small, so that a broken connection costs little, and
// because some servers hold a range in memory.
//
// # A directory
//
// A directory comes as one archive, which has no ranges. If that breaks off, To asks for the directory's
// tree and fetches the missing part: directories without any fetched file as archives, and other files
// one by one. A tree has less information than an archive: a file that was fetched by itself
// gets the time of its download, and hard links may become separate files. So To asks for the whole
// archive once more if that costs no more. It begins anew without a tree if the server gives
// none, or one that contradicts the unpacked files or cannot name a file (in JSON, names must be
// UTF-8).
//
// # The journal
//
// While To runs, the directory of the path belongs to this package. It has a file "journal" there
// with a line for each complete file, written after the file was closed, and for each part of a
// large file, written after that part was flushed. Files that the journal does not name count as
// missing. A journal is valid until the machine restarts, which may lose files that were not
// flushed. To removes the journal before it returns nil.
package fetch
