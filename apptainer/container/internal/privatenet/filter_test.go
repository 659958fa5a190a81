package privatenet

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel runs the filter on a socket of another kind here.
func TestNetworkReachesOtherMachinesOnly(t *testing.T) {
	t.Parallel()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(ends[0]), unix.Close(ends[1]) }()
	filter := program(Subnets()[0])
	if err := unix.SetsockoptSockFprog(ends[1], unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		etherType uint16
		to        string
		want      bool
	}{
		{unix.ETH_P_ARP, "0.0.0.0", true},
		{unix.ETH_P_IP, "10.0.0.1", true},
		{unix.ETH_P_IP, "126.255.255.255", true},
		{unix.ETH_P_IP, "128.0.0.1", true},
		{unix.ETH_P_IP, "169.253.255.255", true},
		{unix.ETH_P_IP, "169.255.0.0", true},
		{unix.ETH_P_IP, "168.63.129.17", true},
		{unix.ETH_P_IP, "100.100.100.201", true},
		{unix.ETH_P_IP, "192.0.3.2", true},
		{unix.ETH_P_IP, "223.255.255.255", true},
		{unix.ETH_P_IP, "0.0.0.0", false},
		{unix.ETH_P_IP, "0.1.2.3", false},
		{unix.ETH_P_IP, "127.0.0.1", false},
		{unix.ETH_P_IP, "127.255.0.1", false},
		{unix.ETH_P_IP, "169.254.169.254", false},
		{unix.ETH_P_IP, "169.254.0.0", false},
		{unix.ETH_P_IP, "168.63.129.16", false},
		{unix.ETH_P_IP, "100.100.100.200", false},
		{unix.ETH_P_IP, "192.0.2.2", false},
		{unix.ETH_P_IP, "192.0.2.255", false},
		{unix.ETH_P_IP, "224.0.0.1", false},
		{unix.ETH_P_IP, "255.255.255.255", false},
		{unix.ETH_P_IPV6, "10.0.0.1", false},
		{unix.ETH_P_8021Q, "10.0.0.1", false},
	} {
		frame := make([]byte, destinationAt+4)
		binary.BigEndian.PutUint16(frame[etherTypeAt:], tt.etherType)
		copy(frame[destinationAt:], netip.MustParseAddr(tt.to).AsSlice())
		// A frame that the filter refuses is EPERM for its sender here (Linux net/unix/af_unix.c: unix_dgram_sendmsg).
		err := unix.Send(ends[0], frame, 0)
		if err != nil && err != unix.EPERM {
			t.Fatal(err)
		}
		n, _, readErr := unix.Recvfrom(ends[1], make([]byte, 100), 0)
		if taken := err == nil && readErr == nil; taken != tt.want || taken && n != len(frame) {
			t.Errorf("type %#x to %s: taken: %v (%v, %d bytes)", tt.etherType, tt.to, taken, err, n)
		}
	}
	cut := make([]byte, destinationAt+3)
	binary.BigEndian.PutUint16(cut[etherTypeAt:], unix.ETH_P_IP)
	_ = unix.Send(ends[0], cut, 0)
	if n, _, err := unix.Recvfrom(ends[1], make([]byte, 100), 0); err == nil {
		t.Errorf("a packet without its whole header was taken: %d bytes", n)
	}
}
