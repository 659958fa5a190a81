package source

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"time"
)

// lookupWithin is how long other names are looked up when one is not found.
const lookupWithin = 10 * time.Second

// unresolved is the error of a request when the name service finds neither the
// request's host nor any other.
type unresolved struct{ error }

// Unwrap returns the name service's own error.
func (e unresolved) Unwrap() error { return e.error }

// doubtUnknownHost makes a "no such host" unresolved when the name service finds no
// other host either. A name service that does not work, or one of another network,
// says "no such host" of every name.
func (src Source) doubtUnknownHost(ctx context.Context, host string, err error) error {
	var dns *net.DNSError
	if !errors.As(err, &dns) || !dns.IsNotFound || src.findsName(ctx, host, dns.Name) {
		return err
	}
	return unresolved{err}
}

// findsName says whether the name service finds a host other than these: one of
// Known, a registry that the site has set up, or Docker Hub.
func (src Source) findsName(ctx context.Context, but ...string) bool {
	for i, host := range but {
		but[i] = hostName(apiHost(host))
	}
	names := []string{apiHost(dockerHub)}
	for _, host := range slices.Concat(src.Known, slices.Collect(maps.Keys(src.Hosts))) {
		names = append(names, hostName(apiHost(host)))
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		// Addresses and localhost are found without a name service.
		return net.ParseIP(name) != nil || name == "localhost" || slices.Contains(but, name)
	})
	ctx, cancel := context.WithTimeout(ctx, lookupWithin)
	defer cancel()
	found := make(chan bool, len(names))
	for _, name := range names {
		go func() {
			_, err := src.resolver().LookupHost(ctx, name)
			found <- err == nil
		}()
	}
	for range names {
		if <-found {
			return true
		}
	}
	return false
}

// hostName returns a host without its port, and an address without its brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

func (src Source) resolver() *net.Resolver {
	if src.Resolver == nil {
		return net.DefaultResolver
	}
	return src.Resolver
}
