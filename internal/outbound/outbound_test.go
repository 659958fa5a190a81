package outbound_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cl-slurm/cl-slurm/internal/nametest"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := outbound.Parse([]string{"10.1.2.3/16", "Data.example.org", "fd00::/8"})
	testenv.Must(t, err)
	want := outbound.Places{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}, Hosts: []string{"data.example.org"}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"10.0.0.0/33", "", "host:80", "a b"} {
		if _, err := outbound.Parse([]string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// inward are spellings of hosts that are not public.
var inward = []string{
	"127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "168.63.129.16",
	"100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "[fd00::1]", "[fd00:ec2::254]", "[fe80::1]", "[ff02::1]", "[64:ff9b::7f00:1]",
	"[2002:7f00:1::]", "[2001::7f00:1]", "[::7f00:1]",
}

func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if refused := (*outbound.RefusedError)(nil); !errors.As(err, &refused) {
		t.Errorf("%s: %v", what, err)
	}
}

// serve serves on loopback until the test's end, and fails the test if anybody connects.
func serveNobody(t *testing.T) (port string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("reached by %s", r.URL) }))
	t.Cleanup(s.Close)
	return s.URL[len("http://127.0.0.1:"):]
}

func TestInwardAddressesAreNotDialled(t *testing.T) {
	t.Parallel()
	port := serveNobody(t)
	client := http.Client{Transport: outbound.Places{}.Transport(&http.Transport{})}
	for _, host := range inward {
		answer, err := client.Get("http://" + host + ":" + port)
		if err == nil {
			_ = answer.Body.Close()
		}
		wantRefused(t, host, err)
	}
}

// The name is not in the list of refused names: its address decides.
func TestAddressOfANameDecides(t *testing.T) {
	t.Parallel()
	own, err := net.InterfaceAddrs()
	testenv.Must(t, err)
	for _, a := range own {
		ip := netip.MustParsePrefix(a.String()).Addr()
		_, err := outbound.Places{}.DialContext(t.Context(), "tcp", netip.AddrPortFrom(ip, 1).String())
		wantRefused(t, ip.String(), err)
	}
}

func TestListedPlacesAreReached(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	at := s.Listener.Addr().String()
	_, port, err := net.SplitHostPort(at)
	testenv.Must(t, err)
	for name, test := range map[string]struct {
		places  outbound.Places
		address string
		refused bool
	}{
		"network":            {places: outbound.Places{Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, address: at},
		"another network":    {places: outbound.Places{Prefixes: []netip.Prefix{netip.MustParsePrefix("127.1.0.0/16")}}, address: at, refused: true},
		"host":               {places: outbound.Places{}.WithHosts("LocalHost"), address: "localhost:" + port},
		"host's port":        {places: outbound.Places{}.WithHosts(at), address: at},
		"another port":       {places: outbound.Places{}.WithHosts("127.0.0.1:1"), address: at, refused: true},
		"another host":       {places: outbound.Places{}.WithHosts("registry.site"), address: at, refused: true},
		"another host's end": {places: outbound.Places{}.WithHosts("0.0.1"), address: at, refused: true},
	} {
		conn, err := test.places.DialContext(t.Context(), "tcp", test.address)
		if err == nil {
			testenv.Must(t, conn.Close())
		}
		if test.refused {
			wantRefused(t, name, err)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A proxy resolves names itself, and spells addresses as inet_aton(3) does.
func TestNamesAreCheckedBeforeAProxyHasThem(t *testing.T) {
	t.Parallel()
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Host)
		_, _ = io.WriteString(w, "proxied")
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	testenv.Must(t, err)
	client := http.Client{Transport: outbound.Places{}.WithHosts("registry.internal").Transport(&http.Transport{Proxy: http.ProxyURL(at)})}
	names := []string{
		"2130706433", "127.1", "0x7f.1", "0x7f000001", "0177.0.0.1", "registry", "registry.local", "metadata.google.internal", "a.localhost", "LOCALHOST.",
		"router.home.arpa", "127.0.0.1.",
	}
	for _, host := range append(names, inward...) {
		answer, err := client.Get("http://" + host + "/")
		if err == nil {
			_ = answer.Body.Close()
		}
		wantRefused(t, host, err)
	}
	if len(asked) > 0 {
		t.Errorf("the proxy was asked for %q", asked)
	}
	for _, host := range []string{"registry.example.org", "registry.internal", "192.0.1.1", "3com.example"} {
		answer, err := client.Get("http://" + host + "/")
		testenv.Must(t, err)
		testenv.Must(t, answer.Body.Close())
	}
	if diff := cmp.Diff([]string{"registry.example.org", "registry.internal", "192.0.1.1", "3com.example"}, asked); diff != "" {
		t.Error(diff)
	}
}

func TestLookupChecksTheAddressesOfAName(t *testing.T) {
	t.Parallel()
	names := nametest.Resolver(t, map[string]netip.Addr{"rebound.example.org": netip.MustParseAddr("10.0.0.1"), "fine.example.org": netip.MustParseAddr("192.0.1.1")})
	for host, refused := range map[string]bool{"rebound.example.org": true, "fine.example.org": false, "unknown.example.org": false, "127.1": true} {
		err := outbound.Places{}.Lookup(t.Context(), names, &url.URL{Scheme: "https", Host: host})
		if refused {
			wantRefused(t, host, err)
		} else if err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := (outbound.Places{}.WithHosts("rebound.example.org:443").Lookup(t.Context(), names, &url.URL{Scheme: "https", Host: "rebound.example.org"})); err != nil {
		t.Error(err)
	}
}
