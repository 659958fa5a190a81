package privatenet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// mostServers is the number of name servers that resolvers use (resolv.conf(5): MAXNS).
const mostServers = 3

// Names is the name resolution of a container.
type Names struct {
	// Hosts and Resolv are its /etc/hosts and /etc/resolv.conf.
	Hosts, Resolv []byte
	// Servers are the name servers to relay to. Resolv names the relays.
	Servers []netip.AddrPort
}

// NamesFor returns the name resolution for a container on a host with these files and this name. The name servers
// that the filter lets the container reach stay. Others, such as those on the host's loopback interface, with IPv6, or
// at the address of a cloud's metadata service, get a relay.
func NamesFor(hosts, resolv []byte, host string, at Subnet) Names {
	n := Names{Hosts: hostsFor(hosts, host, at.Container())}
	var lines []string
	servers := 0
	add := func(server netip.Addr) {
		if servers++; servers > mostServers {
			return
		}
		if !reaches(server) {
			n.Servers = append(n.Servers, netip.AddrPortFrom(server, dnsPort))
			server = Relay(len(n.Servers) - 1)
		}
		lines = append(lines, "nameserver "+server.String())
	}
	for line := range strings.Lines(string(resolv)) {
		line = strings.TrimRight(line, "\r\n")
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			lines = append(lines, line)
			continue
		}
		if server, err := netip.ParseAddr(fields[1]); err == nil {
			add(server.Unmap())
		}
	}
	if servers == 0 {
		add(netip.AddrFrom4([4]byte{127, 0, 0, 1})) // a resolver's default
	}
	n.Resolv = []byte(strings.Join(lines, "\n") + "\n")
	return n
}

// hostsFor returns the host's /etc/hosts for a container with this address. The host's own names mean the
// container there, as in Docker, so that programs which listen at their host's name find an address of their own.
func hostsFor(hosts []byte, host string, at netip.Addr) []byte {
	own, others := []string{}, []string{}
	for line := range strings.Lines(string(hosts)) {
		text, _, _ := strings.Cut(line, "#")
		fields := strings.Fields(text)
		if len(fields) < 2 {
			continue
		}
		address, err := netip.ParseAddr(fields[0])
		switch {
		case err != nil:
		case slices.Contains(fields[1:], host):
			own = append(own, fields[1:]...)
		case !address.IsLoopback():
			others = append(others, strings.Join(fields, " "))
		}
	}
	if !slices.Contains(own, host) {
		own = append(own, host)
	}
	var unique []string
	for _, name := range own {
		if !strings.HasPrefix(name, "localhost") && !strings.HasPrefix(name, "ip6-") && !slices.Contains(unique, name) {
			unique = append(unique, name)
		}
	}
	text := "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
	if len(unique) > 0 {
		text += fmt.Sprintf("%s %s\n", at, strings.Join(unique, " "))
	}
	return []byte(text + strings.Join(append(others, ""), "\n"))
}
