// Package codalabimport moves a lab from CodaLab's own server: it reads that server's database, in MySQL or
// MariaDB, and its contents, and writes a data directory of cl-server.
//
// # Scope
//
// Users, groups, worksheets and bundles keep their ids, owners, times and permissions. Users keep their
// passwords, because package server reads CodaLab's hashes. Tokens, chats, workers and e-mail verifications
// are not imported.
//
// A Problem names each object that changes. Most of them are notes, such as a running bundle that becomes
// failed. A Problem that Stops keeps Run from writing anything.
//
// # Passes
//
// The old server may run during the import, and contents take hours. Therefore Run reads the database
// twice:
//
//	survey    one snapshot: check everything, measure contents
//	copy      contents, without a transaction on either side
//	survey    a second snapshot: copy what is new since the first one
//	write     all rows of the second snapshot, in one transaction
//
// Package store describes the state after an interruption, and the next Run's continuation (store.Import).
// The import only reads the old server's database and files.
package codalabimport
