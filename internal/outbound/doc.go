// Package outbound makes connections to servers that users name, and to servers to which such a server
// redirects. They reach public addresses, and those of the site's own network that the site lists in
// [Places]. The address of the connection decides, after the resolution of names: a name may resolve to
// another address the next time.
package outbound
