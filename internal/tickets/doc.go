// Package tickets finds out until when a process can reach a disk that lets in by tickets: an AFS cell, or NFS with
// Kerberos.
//
// It asks klist(1), of MIT or of Heimdal, and tokens(1) of OpenAFS. Neither asks a server. Both print times in the
// caller's time zone and in the caller's language, so they run with those of UTC and C.
package tickets
