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

// lookupTimeout bounds how long other names are looked up when one is not found.
const lookupTimeout = 10 * time.Second

// unresolved is the error of a request when the name service finds neither the
// request's host nor any other.
type unresolved struct{ error }

// Unwrap returns the name service's own error.
func (e unresolved) Unwrap() error { return e.error }

// doubtUnknownHost makes a "no such host" unresolved when the name service finds no
// other host either. A name service that is broken, or is another network's, says
// "no such host" of every name.
func (src Source) doubtUnknownHost(ctx context.Context, host string, err error) error {
	var dns *net.DNSError
	if !errors.As(err, &dns) || !dns.IsNotFound || src.findsHostBeside(ctx, host, dns.Name) {
		return err
	}
	return unresolved{err}
}

// findsHostBeside reports whether the name service finds any other host: one of Known,
// a registry that the site has set up, or Docker Hub.
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
