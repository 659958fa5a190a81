package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// DialTimeout limits the time for a connection.
const DialTimeout = 20 * time.Second

// Places lists the exceptions: private addresses that connections may reach. The zero value lists nothing.
type Places struct {
	Prefixes []netip.Prefix
	// Hosts are names or addresses as they are in URLs, in lower case. Without a port, all ports of the
	// host are listed.
	Hosts []string
}

// Parse reads places, each of which is a prefix such as 10.1.0.0/16 or a host without a port.
func Parse(places []string) (Places, error) {
	var p Places
	for _, place := range places {
		if strings.Contains(place, "/") {
			prefix, err := netip.ParsePrefix(place)
			if err != nil {
				return p, fmt.Errorf("parse network %s: want one such as 10.1.0.0/16", place)
			}
			p.Prefixes = append(p.Prefixes, prefix.Masked())
			continue
		}
		if place == "" || strings.ContainsAny(place, " \t:") && net.ParseIP(place) == nil {
			return p, fmt.Errorf("parse host %q: want a name or an address, without a port", place)
		}
		p.Hosts = append(p.Hosts, strings.ToLower(place))
	}
	return p, nil
}

// WithHosts returns places with additional hosts.
func (p Places) WithHosts(hosts ...string) Places {
	p.Hosts = slices.Clip(p.Hosts)
	for _, host := range hosts {
		p.Hosts = append(p.Hosts, strings.ToLower(host))
	}
	return p
}

// RefusedError means a place that is neither public nor listed.
type RefusedError struct {
	// Place is the address of a refused connection, or the name of a refused host.
	Place string
}

// Error returns a sentence about the place.
func (e *RefusedError) Error() string { return e.Place + " is not a public address" }

// DialContext connects to an address such as "registry.example.org:443". An error wraps a *RefusedError if
// it refuses the address.
func (p Places) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: DialTimeout}
	if !p.lists(address) {
		dialer.Control = func(_, to string, _ syscall.RawConn) error { return p.check(to) }
	}
	return dialer.DialContext(ctx, network, address)
}

// lists reports whether Hosts has the host of an address, or the address.
func (p Places) lists(address string) bool {
	address = strings.ToLower(address)
	host, _, err := net.SplitHostPort(address)
	return slices.Contains(p.Hosts, address) || err == nil && slices.Contains(p.Hosts, host)
}

// check checks the address of a connection that is about to be made.
func (p Places) check(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return &RefusedError{Place: address}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list own addresses: %w", err)
	}
	return p.checkIP(at.Addr().Unmap(), own)
}

func (p Places) checkIP(ip netip.Addr, own []net.Addr) error {
	for _, prefix := range p.Prefixes {
		if prefix.Contains(ip) {
			return nil
		}
	}
	if !isPublic(ip, own) {
		return &RefusedError{Place: ip.String()}
	}
	return nil
}

// CheckName checks the host of a URL if another program resolves its name, such as a proxy. It refuses
// addresses that DialContext refuses, in every spelling, and names that mean this machine or its own
// network (RFC 6761, 6.3; RFC 6762, 3; RFC 8375; ICANN reserves "internal"). Another name may have a private address
// there all the same. An error is a *RefusedError.
func (p Places) CheckName(u *url.URL) error {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if p.lists(addressOf(u)) {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return p.checkIP(ip.Unmap(), nil)
	}
	labels := strings.Split(host, ".")
	last := labels[len(labels)-1]
	switch {
	case isNumber(last), // inet_aton(3) reads 2130706433, 127.1 and 0x7f.1 as addresses
		len(labels) == 1, // "localhost", or a name of the search domains
		slices.Contains([]string{"localhost", "local", "internal"}, last),
		strings.HasSuffix(host, ".home.arpa"):
		return &RefusedError{Place: host}
	}
	return nil
}

// addressOf returns the address that a URL's host and port mean.
func addressOf(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
}

// isNumber reports whether a host with this last label is an address and not a name (URL Standard:
// ends-in-a-number checker).
func isNumber(label string) bool {
	digits, set := label, "0123456789"
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		digits, set = hex, "0123456789abcdef"
	}
	return strings.Trim(digits, set) == ""
}

// Lookup is CheckName, and also checks the addresses to which resolver resolves the name now. An unknown
// name passes.
func (p Places) Lookup(ctx context.Context, resolver *net.Resolver, u *url.URL) error {
	if err := p.CheckName(u); err != nil || p.lists(addressOf(u)) {
		return err
	}
	ips, err := resolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // the other program may know it
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list own addresses: %w", err)
	}
	var errs []error
	for _, ip := range ips {
		errs = append(errs, p.checkIP(ip.Unmap(), own))
	}
	return errors.Join(errs...)
}
