// Package clientnet tells which addresses count as one client: whoever has one address of IPv6 usually has many. It is a
// leaf, and does no I/O.
package clientnet

import "net/netip"

// Of returns the network of an address: the address itself with IPv4, and the /48 that a site has with IPv6 (RFC 6177).
// A text that is no address is returned as it is.
func Of(address string) string {
	const site = 48
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a.String()
	}
	p, err := a.Prefix(site)
	if err != nil {
		return address
	}
	return p.String()
}
