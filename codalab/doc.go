// Package codalab holds CodaLab's nouns and its wire format: the objects of the REST API (bundles
// and their metadata, worksheets, users, groups, listed workers), JSON:API documents, and the
// messages that a server and a worker exchange. A server encodes these types, and package client
// decodes them. Related objects, such as the owner of a worksheet, are in the relationships of
// JSON:API and in the types of package client.
//
// CodaLab is a program in Python, and scripts compare the texts that Python gives to values.
// [PythonStr] and [PythonRepr] give the same texts.
//
// The package has values, parsing and printing, does no I/O, and imports no other package of this
// project. Names, keys and spellings are those of CodaLab 1.7.3. Comments cite the source of
// its REST server, command line and worker (repository codalab/codalab-worksheets).
package codalab

// Version is the release of CodaLab that this project's servers and clients are compatible
// with.
const Version = "1.7.3"
