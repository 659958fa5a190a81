// Package privatenet gives a container a network of its own, with the means of an ordinary user. A *forwarder*,
// the program slirp4netns or pasta, carries the container's connections to the host's network: it takes packets from
// an interface in the container's network namespace, and makes ordinary connections of the user from them.
//
//	container's network                      │  host's network
//	command ──► tap0 ──► filter ─────────────┼─► forwarder ──► connections of the user
//	resolver ──► 127.0.0.11, port 53 ────────┼─► relay ──► name server that only the host reaches
//
// The forwarders connect to any address that a packet names, also to 127.0.0.1, which a command can put there by binding
// a socket to the interface (socket(7): SO_BINDTODEVICE). Their options against this (--disable-host-loopback,
// --no-map-gw) concern only addresses that stand for the host. The filter in the kernel is therefore the wall:
// it takes only packets to other machines, whatever program made them.
//
// The name servers of slirp4netns and pasta reach every port of the host's name server, which is often on
// the host's loopback interface. The relay reaches only the name server's own port.
package privatenet
