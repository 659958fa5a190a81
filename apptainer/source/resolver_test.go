package source_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/nametest"
)

// resolverOf returns a resolver that finds these hosts at 127.0.0.1, and no others.
func resolverOf(t *testing.T, names ...string) *net.Resolver {
	t.Helper()
	hosts := map[string]netip.Addr{}
	for _, name := range names {
		hosts[name] = netip.MustParseAddr("127.0.0.1")
	}
	return nametest.Resolver(t, hosts)
}
