// Package codalab holds CodaLab's nouns and its wire format: bundles and
// their metadata, worksheets, users, JSON:API documents, and the messages
// that a server and a worker exchange.
//
// It is a leaf: values, parsing and printing, no I/O, nothing else of this
// project. Names, keys and spellings are those of CodaLab 1.7.3, whose REST
// server, command line and worker (repository codalab/codalab-worksheets) are
// the authority that its comments cite.
package codalab

// Version is the protocol version that servers and clients of this project
// speak, as CodaLab's own release numbers count.
const Version = "1.7.3"
