package privatenet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// routes is a /proc/net/route with a default route and these.
func routes(t *testing.T, networks ...string) string {
	t.Helper()
	text := "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\neth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	for _, n := range networks {
		to := netip.MustParsePrefix(n)
		at := to.Addr().As4()
		var mask [4]byte
		binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-to.Bits()))
		text += fmt.Sprintf("eth0\t%08X\t00000000\t0001\t0\t0\t0\t%08X\t0\t0\t0\n", binary.NativeEndian.Uint32(at[:]), binary.NativeEndian.Uint32(mask[:]))
	}
	return text
}

func TestNetworkIsOneThatTheHostHasNoRouteTo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		networks []string
		want     string
	}{
		{nil, "192.0.2.0/24"},
		{[]string{"10.0.0.0/8", "192.168.0.0/16"}, "192.0.2.0/24"},
		{[]string{"192.0.2.0/24"}, "198.51.100.0/24"},
		{[]string{"192.0.0.0/16"}, "198.51.100.0/24"},
		{[]string{"192.0.2.77/32", "198.51.100.128/25"}, "203.0.113.0/24"},
		{[]string{"128.0.0.0/1"}, "192.0.2.0/24"}, // there is no other
	} {
		if got := ChooseSubnet(routes(t, tt.networks...)); got.String() != tt.want {
			t.Errorf("%q: %s, want %s", tt.networks, got, tt.want)
		}
	}
}

func TestNamesAreTheHostsExceptForItsOwn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		hosts, resolv, wantHosts, wantResolv string
		relayed                              []string
	}{
		"servers that the forwarder reaches": {
			resolv: "# by the site\nnameserver 10.1.1.1\nnameserver 10.1.1.2\nsearch a.example b.example\n", hosts: "10.0.0.5 n1 # this\n10.0.0.6 n2\n",
			wantResolv: "# by the site\nnameserver 10.1.1.1\nnameserver 10.1.1.2\nsearch a.example b.example\n", wantHosts: "192.0.2.100 n1\n10.0.0.6 n2\n",
		},
		"servers that only the host reaches": {
			resolv: "nameserver ::1\nnameserver 10.1.1.1\nnameserver fe80::1%eth0\nnameserver 127.0.0.53\n", hosts: "127.0.1.1 n1.example n1\nfe80::1 router\n",
			wantResolv: "nameserver 127.0.0.11\nnameserver 10.1.1.1\nnameserver 127.0.0.12\n", wantHosts: "192.0.2.100 n1.example n1\nfe80::1 router\n",
			relayed: []string{"[::1]:53", "[fe80::1%eth0]:53"},
		},
		"a server at the address of a metadata service": {
			resolv: "nameserver 169.254.169.254\n", wantResolv: "nameserver 127.0.0.11\n", wantHosts: "192.0.2.100 n1\n",
			relayed: []string{"169.254.169.254:53"},
		},
		"no files": {wantResolv: "nameserver 127.0.0.11\n", wantHosts: "192.0.2.100 n1\n", relayed: []string{"127.0.0.1:53"}},
		"names of the loopback interface": {
			hosts: "127.0.0.1 localhost n1\n::1 localhost ip6-localhost n1\n127.0.0.2 other\nnonsense n3\n", resolv: "nameserver 10.1.1.1\nnameserver nonsense\n",
			wantHosts: "192.0.2.100 n1\n", wantResolv: "nameserver 10.1.1.1\n",
		},
	} {
		got := NamesFor([]byte(tt.hosts), []byte(tt.resolv), "n1", Subnets()[0])
		var relayed []string
		for _, s := range got.Servers {
			relayed = append(relayed, s.String())
		}
		want := []string{"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n" + tt.wantHosts, tt.wantResolv}
		if diff := cmp.Diff(append(want, tt.relayed...), append([]string{string(got.Hosts), string(got.Resolv)}, relayed...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLastMessageIsNotNoise(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"": "", "sent tapfd=5 for tap0\nWARNING: Support for seccomp is experimental\nopen(\"/dev/net/tun\"): Permission denied\n": `open("/dev/net/tun"): Permission denied`,
		"No external routable interface for IPv4\nFailed to send 40 bytes to syslog\n": "No external routable interface for IPv4",
	} {
		if got := LastMessage(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

// A forwarder opens the device, and makes its interface with a later call. Between the two there is nothing to filter.
func TestForwarderWithoutAnInterfaceIsAwaited(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	device, err := os.OpenFile(tunDevice, os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs the device of forwarders: %v", err)
	}
	defer func() { _ = device.Close() }()
	if done, err := Confine(os.Getpid(), ChooseSubnet("")); done || err != nil {
		t.Errorf("%v, %v, want false and no error", done, err)
	}
}
