package outbound

import (
	"net"
	"net/netip"
)

// special returns the networks in the address space of the Internet that are not public (IANA's registries
// of special-purpose addresses; RFC 3068 for 192.88.99.0/24; 168.63.129.16 is the host of each machine of Azure).
func special() []string {
	return []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"168.63.129.16/32", "203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	}
}

// isPublic reports whether an address is one of the Internet and none of own, which are this machine's.
func isPublic(ip netip.Addr, own []net.Addr) bool {
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.Zone() != "" {
		return false
	}
	if ip.Is6() && !netip.MustParsePrefix("2000::/3").Contains(ip) {
		return false // also addresses that contain others
	}
	for _, network := range special() {
		if netip.MustParsePrefix(network).Contains(ip) {
			return false
		}
	}
	for _, a := range own {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Unmap() == ip {
			return false
		}
	}
	return true
}
