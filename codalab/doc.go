// Package codalab holds CodaLab's nouns and its wire format: bundles and their metadata,
// worksheets, users, JSON:API documents, and the messages that a server and a worker exchange.
//
// It has values, parsing and printing, does no I/O, and imports no other package of this
// project. Names, keys and spellings are those of CodaLab 1.7.3. Comments cite the source of
// its REST server, command line and worker (repository codalab/codalab-worksheets).
package codalab

// Version is the release of CodaLab that this project's servers and clients are compatible
// with.
const Version = "1.7.3"
