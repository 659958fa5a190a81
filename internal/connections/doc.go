// Package connections bounds the connections of an HTTP server, so that clients cannot use up its file descriptors.
//
// A connection is served while a handler runs for it. At all other times it waits: for its first request, for the rest
// of a request's headers, for the next request. Anybody can open connections and let them wait. So no connection is
// refused in favour of one that waits:
//
//   - If there are too many connections, the address with the most of them loses the one that has waited longest.
//   - An address with more than its share loses its own.
//   - If none waits, a new connection is a spare one. It is closed after its first request. The server answers 503,
//     except to requests that are always served, such as those for its health. There are few spare connections. A
//     new one replaces the one that has waited longest.
//
// A handler that holds a connection which its client can do without calls [Release]. The connection counts as waiting
// then.
package connections
