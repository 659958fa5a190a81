package privatenet

import (
	"path/filepath"
	"strconv"
	"strings"
)

// The forwarders, in the order of preference. pasta before 2024 needs a default route on the host, and ends
// at a TERM to the whole job.
const (
	slirp4netns = "slirp4netns"
	pasta       = "pasta"
)

// Programs returns the names of the forwarders.
func Programs() []string { return []string{slirp4netns, pasta} }

// Args returns the command line of a forwarder, which is one of Programs, for a namespace. The forwarder must run in the
// user namespace that made it.
func Args(program string, n *Namespace, subnet Subnet) []string {
	if filepath.Base(program) == pasta {
		return []string{
			program, "--foreground", "--quiet", "--ipv4-only", "--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none",
			"--no-map-gw", "--no-dhcp", "--no-dhcpv6", "--no-ndp", "--no-ra", "--ns-ifname", Device, "--mtu", strconv.Itoa(MTU),
			"--address", subnet.Container().String(), "--netmask", strconv.Itoa(subnet.Bits()), "--gateway", subnet.Gateway().String(),
			"--no-netns-quit", "--netns", n.Path,
		}
	}
	return []string{
		program, "--mtu=" + strconv.Itoa(MTU), "--cidr=" + subnet.String(), "--disable-host-loopback", "--disable-dns",
		"--enable-sandbox", "--enable-seccomp", "--netns-type=path", n.Path, Device,
	}
}

// LastMessage returns the last line of a forwarder's output that says something.
func LastMessage(output string) string {
	last := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "Failed to send ") && !strings.HasPrefix(line, "WARNING:") { // pasta's, where no syslog runs
			last = line
		}
	}
	return last
}
