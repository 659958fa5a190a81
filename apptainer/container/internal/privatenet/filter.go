package privatenet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	order := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}                                           //nolint:gosec // a dozen
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNATTACHFILTER, uintptr(unsafe.Pointer(&order))) //nolint:gosec // as ioctl(2) takes it
	runtime.KeepAlive(filter)
	if errno != 0 {
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
	if err != nil {
		return -1, os.NewSyscallError("pidfd_open", err)
	}
	defer func() { _ = unix.Close(process) }()
	fd, err = unix.PidfdGetfd(process, number, 0)
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

// program returns the filter: it takes ARP, which finds the gateway, and IPv4 to other machines. It refuses
// IPv6, and IPv4 to this host (0.0.0.0/8, 127.0.0.0/8), to the forwarder itself, and to several machines at a time
// (224.0.0.0 and above, with the broadcast address).
func program(subnet Subnet) []unix.SockFilter {
	word := func(b [4]byte) uint32 { return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) }
	const (
		half   = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		and    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		finish = unix.BPF_RET | unix.BPF_K
	)
	return []unix.SockFilter{
		{Code: half, K: etherTypeAt},
		{Code: equal, K: unix.ETH_P_ARP, Jt: 8},
		{Code: equal, K: unix.ETH_P_IP, Jf: 8},
		{Code: load, K: destinationAt},
		{Code: least, K: word([4]byte{224}), Jt: 6},
		{Code: and, K: word([4]byte{255, 255, 255, 0})},
		{Code: equal, K: word(subnet.Addr().As4()), Jt: 4},
		{Code: and, K: word([4]byte{255})},
		{Code: equal, K: word([4]byte{127}), Jt: 2},
		{Code: equal, K: 0, Jt: 1},
		{Code: finish, K: everything},
		{Code: finish, K: 0},
	}
}
