package runner

import (
	"net/netip"
	"slices"
	"testing"
)

// The text is from Linux 6.1. Sockets listen on port 5000 at 127.0.0.1 and on port 5001 at every
// address of IPv4, and one is connected to port 5000.
const tcp4 = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1388 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 101 1 0000000000000000 100 0 0 10 0
   1: 00000000:1389 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 102 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1388 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 103 1 0000000000000000 20 4 30 10 -1
`

// Sockets listen on port 5000 at ::1, on port 5001 at every address, and on port 5002 at
// ::ffff:127.0.0.1.
const tcp6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:1388 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 201 1 0000000000000000 100 0 0 10 0
   1: 00000000000000000000000000000000:1389 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 202 1 0000000000000000 100 0 0 10 0
   2: 0000000000000000FFFF00000100007F:138A 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 203 1 0000000000000000 100 0 0 10 0
`

func TestListenerThatGetsAConnectionIsFound(t *testing.T) {
	t.Parallel()
	if at, ok := parseAddress("0100007F"); !ok || at != netip.MustParseAddr("127.0.0.1") {
		t.Skipf("the texts are of another order of bytes: %s", at)
	}
	for _, tt := range []struct {
		port int
		to   string
		want []string
	}{
		{5000, "127.0.0.1", []string{"101"}},
		{5000, "::1", []string{"201"}},
		{5001, "127.0.0.1", []string{"102"}},
		{5001, "::1", []string{"202"}},
		{5002, "127.0.0.1", []string{"203"}},
		{5002, "::1", nil},
		{5003, "127.0.0.1", nil},
	} {
		all := append(parseListeners(tcp4, tt.port), parseListeners(tcp6, tt.port)...)
		var got []string
		for _, l := range answering(all, netip.MustParseAddr(tt.to)) {
			got = append(got, l.inode)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("port %d at %s: %q, want %q", tt.port, tt.to, got, tt.want)
		}
	}
}
