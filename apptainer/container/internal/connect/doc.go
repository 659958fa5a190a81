// Package connect reaches a port on localhost of a running container from outside, even if the
// container has no network.
//
//	caller                                          in the container's network
//	Start ── docker exec, nsenter ──────────────►   Main: connects to the port
//	standard output: Connected ◄─────────────────
//	standard input, standard output ◄───────────►   the connection's bytes
//
// The end of the standard input ends one direction of the connection.
package connect
