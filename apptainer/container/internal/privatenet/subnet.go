package privatenet

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// Subnet is the network between a container and its forwarder.
type Subnet struct{ netip.Prefix }

// Container returns the address of the container.
func (s Subnet) Container() netip.Addr { return s.host(100) }

// Gateway returns the address of the forwarder, which answers there to no connection.
func (s Subnet) Gateway() netip.Addr { return s.host(2) }

func (s Subnet) host(n byte) netip.Addr {
	at := s.Addr().As4()
	at[3] = n
	return netip.AddrFrom4(at)
}

// Subnets returns the networks to choose from: addresses that no machine has (RFC 5737).
func Subnets() []Subnet {
	return []Subnet{
		{netip.MustParsePrefix("192.0.2.0/24")},
		{netip.MustParsePrefix("198.51.100.0/24")},
		{netip.MustParsePrefix("203.0.113.0/24")},
	}
}

// ChooseSubnet returns the first network that the host has no route to, by its /proc/net/route. If it has routes
// to all, it returns the first.
func ChooseSubnet(routes string) Subnet {
	all := Subnets()
	for _, s := range all {
		if !isRouted(routes, s.Prefix) {
			return s
		}
	}
	return all[0]
}

// isRouted reports whether a table has a route, except for a default route, to a part of a network (proc_pid_net(5):
// route).
func isRouted(routes string, network netip.Prefix) bool {
	for line := range strings.Lines(routes) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		to, okTo := parseWord(fields[1])
		mask, okMask := parseWord(fields[7])
		if !okTo || !okMask {
			continue // the heading
		}
		bits := 0
		for m := binary.BigEndian.Uint32(mask[:]); m&(1<<31) != 0; m <<= 1 {
			bits++
		}
		if bits > 0 && netip.PrefixFrom(netip.AddrFrom4(to), bits).Overlaps(network) {
			return true
		}
	}
	return false
}

// parseWord parses an address that is a number in the host's order of bytes.
func parseWord(text string) (word [4]byte, ok bool) {
	n, err := strconv.ParseUint(text, 16, 32)
	binary.NativeEndian.PutUint32(word[:], uint32(n))
	return word, err == nil && len(text) == 8
}
