// Package codalabimport moves a lab from CodaLab's own server: it reads that server's database, in MySQL or
// MariaDB, and its contents, and writes a data directory of cl-server.
//
// # What becomes what
//
// Users, groups, worksheets and bundles keep their ids, owners, times and permissions. Users keep their
// passwords, since package server reads CodaLab's hashes. Tokens, chats, workers and e-mail
// verifications are not imported.
//
// A Problem names each thing that cannot stay as it was. Most of them are notes, such as a run that was
// under way and becomes failed. A Problem that Stops keeps Run from writing anything.
//
// # Passes
//
// The old server may run meanwhile, and contents take hours. Therefore Run reads the database twice:
//
//	survey    one snapshot: check everything, measure contents
//	copy      contents, without a transaction on either side
//	survey    a second snapshot: copy what is new since the first one
//	write     all rows of the second snapshot, in one transaction
//
// package store describes what an interruption leaves, and how the next Run goes on (store.Import).
// The import only reads the old server's database and files.
package codalabimport
