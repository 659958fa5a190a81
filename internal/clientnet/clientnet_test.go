package clientnet_test

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/clientnet"
)

func TestAddressesOfOneSiteAreOneNetwork(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "fe80::1%eth0": "fe80::/48", "@": "@", "": "",
		"2001:db8:1:2::7": "2001:db8:1::/48", "2001:db8:1:ffff::1": "2001:db8:1::/48",
	} {
		if got := clientnet.Of(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}
