package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// listener is a TCP socket that listens in the network of this process.
type listener struct {
	at    netip.Addr // the local address; 127.0.0.1 even if the socket has it as ::ffff:127.0.0.1
	inode string
}

// ownAddresses returns the addresses of localhost at which a process of a tree answers on a port,
// in the network of this process. All users share the ports of a host's localhost, so it omits an
// address at which another process may answer.
func ownAddresses(root, port int) ([]netip.Addr, error) {
	all, err := listeners(port)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	sockets := socketsOf(root)
	var own []netip.Addr
	for _, localhost := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		answers := answering(all, localhost)
		if len(answers) > 0 && !slices.ContainsFunc(answers, func(l listener) bool { return !sockets[l.inode] }) {
			own = append(own, localhost)
		}
	}
	return own, nil
}

// answering returns the listeners that may get a connection to an address: those of the address
// itself, or else those of all addresses (ip(7), tcp(7)). An IPv6 socket for all addresses also
// gets connections of IPv4, if no IPv4 socket does (ipv6(7): IPV6_V6ONLY).
func answering(all []listener, to netip.Addr) []listener {
	addresses := []netip.Addr{to, netip.IPv6Unspecified()}
	if to.Is4() {
		addresses = []netip.Addr{to, netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	for _, at := range addresses {
		found := slices.DeleteFunc(slices.Clone(all), func(l listener) bool { return l.at != at })
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// listeners returns the sockets that listen on a port.
func listeners(port int) ([]listener, error) {
	var all []listener
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the host has no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("look for listeners: %w", err)
		}
		all = append(all, parseListeners(string(text), port)...)
	}
	return all, nil
}

// stateListen is the state of a listening socket (linux: include/net/tcp_states.h, TCP_LISTEN).
const stateListen = "0A"

// parseListeners parses a /proc/net/tcp or /proc/net/tcp6 (proc_pid_net(5)).
func parseListeners(text string, port int) []listener {
	var found []listener
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != stateListen {
			continue
		}
		host, number, _ := strings.Cut(fields[1], ":")
		n, err := strconv.ParseUint(number, 16, 16)
		if err != nil || int(n) != port {
			continue
		}
		if at, ok := parseAddress(host); ok {
			found = append(found, listener{at: at, inode: fields[9]})
		}
	}
	return found
}

// parseAddress parses an address: words of four bytes in this host's order, in hexadecimal.
func parseAddress(text string) (at netip.Addr, ok bool) {
	var raw []byte
	for ; len(text) >= 8; text = text[8:] {
		word, err := strconv.ParseUint(text[:8], 16, 32)
		if err != nil {
			return netip.Addr{}, false
		}
		raw = binary.NativeEndian.AppendUint32(raw, uint32(word))
	}
	at, ok = netip.AddrFromSlice(raw)
	return at.Unmap(), ok
}

// socketsOf returns the inodes of the open sockets of a process and its descendants. It omits
// processes that this user may not inspect.
func socketsOf(root int) map[string]bool {
	sockets := map[string]bool{}
	for _, p := range procstat.Tree("/proc", root) {
		dir := filepath.Join("/proc", strconv.Itoa(p.PID), "fd")
		entries, _ := os.ReadDir(dir) // the process may have ended
		for _, e := range entries {
			target, err := os.Readlink(filepath.Join(dir, e.Name()))
			if inode, ok := strings.CutPrefix(target, "socket:["); ok && err == nil { // proc_pid_fd(5)
				sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	return sockets
}
