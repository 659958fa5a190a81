package source

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// lookupTimeout limits the look-ups of other names after one was not found.
const lookupTimeout = 10 * time.Second

// unresolved is the error of a request if the name service finds neither the request's host nor any
// other.
type unresolved struct{ error }

// Unwrap returns the name service's own error.
func (e unresolved) Unwrap() error { return e.error }

// doubtUnknownHost wraps a "no such host" error as unresolved if the name service finds no other
// host either. A broken name service, or one of another network, returns "no such host" for every
// name.
func (src Source) doubtUnknownHost(ctx context.Context, host string, err error) error {
	var dns *net.DNSError
	if !errors.As(err, &dns) || !dns.IsNotFound || src.findsHostBeside(ctx, host, dns.Name) {
		return err
	}
	return unresolved{err}
}

// findsHostBeside reports whether the name service finds any host except for the unknown ones: one
// of Known, a registry that the site has configured, or Docker Hub.
func (src Source) findsHostBeside(ctx context.Context, unknown ...string) bool {
	for i, host := range unknown {
		unknown[i] = hostName(apiHost(host))
	}
	names := []string{apiHost(dockerHub)}
	for _, host := range slices.Concat(src.Known, slices.Collect(maps.Keys(src.Hosts))) {
		names = append(names, hostName(apiHost(host)))
	}
	slices.Sort(names)
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	resolver := src.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	var found atomic.Bool
	var lookups sync.WaitGroup
	for _, name := range slices.Compact(names) {
		// Addresses and localhost are found without a name service.
		if net.ParseIP(name) != nil || name == "localhost" || slices.Contains(unknown, name) {
			continue
		}
		lookups.Go(func() {
			if _, err := resolver.LookupHost(ctx, name); err == nil {
				found.Store(true)
				cancel()
			}
		})
	}
	lookups.Wait()
	return found.Load()
}

// hostName returns a host without its port, and an address without its brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}
