package privatenet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tunDevice is the file of which a forwarder's interface is an open one.
const tunDevice = "/dev/net/tun"

// Confine gives the kernel the filter for the interface of a forwarder, a child of this process. It returns false
// while the forwarder has not made the interface. It takes no part of the interface before.
func Confine(forwarder int, subnet Subnet) (done bool, err error) {
	fd, err := openTap(forwarder)
	if err != nil || fd < 0 {
		return false, err
	}
	filter := program(subnet)
	order := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}                                           //nolint:gosec // a few dozen
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNATTACHFILTER, uintptr(unsafe.Pointer(&order))) //nolint:gosec // as ioctl(2) takes it
	runtime.KeepAlive(filter)
	switch errno {
	case 0:
	case unix.EBADFD: // the forwarder has opened the device, and not yet made the interface (tun_chr_ioctl)
		return false, unix.Close(fd)
	default:
		err = os.NewSyscallError("filter the network", errno)
	}
	return err == nil, errors.Join(err, unix.Close(fd))
}

// openTap returns a copy of a process's descriptor of its interface, or -1 if it has none.
func openTap(pid int) (fd int, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1, nil //nolint:nilerr // it is just starting, or has ended
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err != nil || target != tunDevice {
			continue
		}
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		return copyDescriptor(pid, number)
	}
	return -1, nil
}

func copyDescriptor(pid, number int) (fd int, err error) {
	process, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) { // it has ended
		return -1, nil
	}
	if err != nil {
		return -1, os.NewSyscallError("pidfd_open", err)
	}
	defer func() { _ = unix.Close(process) }()
	fd, err = unix.PidfdGetfd(process, number, 0)
	if errors.Is(err, unix.EBADF) || errors.Is(err, unix.ESRCH) { // it has closed that, or has ended
		return -1, nil
	}
	if errors.Is(err, unix.ENOSYS) {
		return -1, errors.New("the node's kernel is older than Linux 5.6, and cannot keep a private network from the host's services")
	}
	if err != nil {
		return -1, fmt.Errorf("reach the forwarder's interface: %w", os.NewSyscallError("pidfd_getfd", err))
	}
	return fd, nil
}

// The frames of Ethernet with IPv4 in them.
const (
	etherTypeAt   = 12
	destinationAt = 14 + 16
	everything    = 1 << 18 // bytes of a packet; none is larger
)

// elsewhere lists the addresses that are no other machine's: this host's (RFC 1122, section 3.2.1.3), those of several
// machines at a time, and the services by which a cloud gives a node its credentials.
func elsewhere() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("224.0.0.0/3"),        // multicast, and 240.0.0.0/4 with the broadcast address
		netip.MustParsePrefix("169.254.0.0/16"),     // link-local (RFC 3927); nearly all clouds
		netip.MustParsePrefix("168.63.129.16/32"),   // Azure
		netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	}
}

// reaches reports whether the filter lets a packet to an address through.
func reaches(to netip.Addr) bool {
	return to.Is4() && !slices.ContainsFunc(elsewhere(), func(p netip.Prefix) bool { return p.Contains(to) })
}

// program returns the filter: it takes ARP, which finds the gateway, and IPv4 to other machines. It refuses
// IPv6, and IPv4 to the forwarder itself.
func program(subnet Subnet) []unix.SockFilter {
	word := func(b [4]byte) uint32 { return binary.BigEndian.Uint32(b[:]) }
	const (
		half   = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		and    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		finish = unix.BPF_RET | unix.BPF_K
	)
	take, refuse := unix.SockFilter{Code: finish, K: everything}, unix.SockFilter{Code: finish}
	filter := []unix.SockFilter{
		{Code: half, K: etherTypeAt},
		{Code: equal, K: unix.ETH_P_ARP, Jf: 1}, // otherwise skip one instruction
		take,
		{Code: equal, K: unix.ETH_P_IP, Jt: 1},
		refuse,
	}
	for _, p := range append(elsewhere(), subnet.Prefix) {
		filter = append(filter, []unix.SockFilter{
			{Code: load, K: destinationAt},
			{Code: and, K: ^uint32(0) << (32 - p.Bits())},
			{Code: equal, K: word(p.Addr().As4()), Jf: 1},
			refuse,
		}...)
	}
	return append(filter, take)
}
