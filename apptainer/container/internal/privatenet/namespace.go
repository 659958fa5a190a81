package privatenet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Device is the name of the container's interface.
const Device = "tap0"

// MTU is the largest packet of the interface. The forwarders copy data less often with large packets.
const MTU = 65520

// Namespace is a network namespace of a container.
type Namespace struct {
	// Path is a file that stands for the namespace.
	Path string

	socket int      // in the namespace, to configure it
	links  *os.File // a socket of rtnetlink in the namespace, for messages about its interfaces
}

// New makes a namespace, with a loopback interface. It mounts the namespace at path, a new file, so the caller
// must be root of its own mount namespace. servers are the name servers to relay to: while this process
// lives, the namespace reaches them at Relay(0), Relay(1) and so on.
func New(path string, servers []netip.AddrPort) (*Namespace, error) {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, fmt.Errorf("make a network: %w", err)
	}
	n := &Namespace{Path: path}
	var err error
	<-background.Go(func() {
		runtime.LockOSThread() // the thread ends with this function, because it stays locked
		err = n.make(servers)
	})
	if err != nil {
		return nil, fmt.Errorf("make a network: %w", err)
	}
	return n, nil
}

// make moves the calling thread into a new namespace.
func (n *Namespace) make(servers []netip.AddrPort) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("/proc/thread-self/ns/net", n.Path, "", unix.MS_BIND, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	var err error
	if n.socket, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return os.NewSyscallError("socket", err)
	}
	if err := n.up("lo"); err != nil {
		return err
	}
	if n.links, err = openLinks(); err != nil {
		return err
	}
	allowOrdinaryUsers()
	for i, server := range servers {
		r, err := listen(Relay(i), server)
		if err != nil {
			return err
		}
		r.serve()
	}
	return nil
}

// openLinks opens a socket that gets a message for each later change of an interface (rtnetlink(7)).
func openLinks() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "interfaces"), nil
}

// Changed returns a channel that is closed when an interface has changed since New, which is called first. It is called once.
func (n *Namespace) Changed() <-chan struct{} {
	return background.Go(func() {
		_, _ = n.links.Read(make([]byte, 1)) // the rest of the message is dropped
		_ = n.links.Close()
	})
}

// allowOrdinaryUsers lets all users of the calling thread's network listen on any port and use ping, as in Docker
// (daemon/daemon_unix.go: WithSysctls). The command may be in a user namespace below, where its capabilities do not
// count for the network. Older kernels lack the one, and a namespace with one id takes no larger range of groups.
func allowOrdinaryUsers() {
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0o600)
	const groups = "/proc/sys/net/ipv4/ping_group_range"
	if os.WriteFile(groups, []byte("0 65535"), 0o600) != nil {
		_ = os.WriteFile(groups, []byte("0 0"), 0o600)
	}
}

// Configure gives the interface its address and the namespace its default route. A forwarder has made the interface.
func (n *Namespace) Configure(subnet Subnet) error {
	mtu, err := unix.NewIfreq(Device)
	if err != nil {
		return os.NewSyscallError("ifreq", err)
	}
	mtu.SetUint32(MTU)
	mask := netip.AddrFrom4([4]byte{255, 255, 255, 0})
	err = os.NewSyscallError("set the MTU", unix.IoctlIfreq(n.socket, unix.SIOCSIFMTU, mtu))
	if err == nil {
		err = n.setAddress(unix.SIOCSIFADDR, subnet.Container())
	}
	if err == nil {
		err = n.setAddress(unix.SIOCSIFNETMASK, mask)
	}
	if err == nil {
		err = n.up(Device)
	}
	if err == nil {
		err = n.addDefaultRoute(subnet.Gateway())
	}
	if err != nil {
		return fmt.Errorf("configure a network: %w", err)
	}
	return nil
}

func (n *Namespace) setAddress(what uint, at netip.Addr) error {
	request, err := unix.NewIfreq(Device)
	if err == nil {
		err = request.SetInet4Addr(at.AsSlice())
	}
	if err == nil {
		err = unix.IoctlIfreq(n.socket, what, request)
	}
	return os.NewSyscallError("set an address", err)
}

// up switches an interface on.
func (n *Namespace) up(device string) error {
	request, err := unix.NewIfreq(device)
	if err == nil {
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		err = unix.IoctlIfreq(n.socket, unix.SIOCSIFFLAGS, request)
	}
	return os.NewSyscallError("switch "+device+" on", err)
}

// route is struct rtentry (linux/route.h).
type route struct {
	_                uintptr
	to, by, mask     unix.RawSockaddrInet4
	flags            uint16
	_                int16
	_                uintptr
	_                uintptr
	metric           int16
	device           *byte
	mtu, window      uintptr
	roundTripTimeout uint16
}

func (n *Namespace) addDefaultRoute(gateway netip.Addr) error {
	anywhere := unix.RawSockaddrInet4{Family: unix.AF_INET}
	r := route{to: anywhere, mask: anywhere, by: anywhere, flags: unix.RTF_UP | unix.RTF_GATEWAY}
	r.by.Addr = gateway.As4()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(n.socket), unix.SIOCADDRT, uintptr(unsafe.Pointer(&r))) //nolint:gosec // as ioctl(2) takes it
	if errno != 0 {
		return os.NewSyscallError("add a route", errno)
	}
	return nil
}

// Forwarded returns an error if there is no forwarder any more: the interface is its file.
func (n *Namespace) Forwarded() error {
	flags, err := unix.NewIfreq(Device)
	if err == nil {
		err = unix.IoctlIfreq(n.socket, unix.SIOCGIFFLAGS, flags)
	}
	return os.NewSyscallError("find the interface of the private network", err)
}

// Enter moves the calling thread into the namespace, with the processes that it starts afterwards.
func (n *Namespace) Enter() error {
	fd, err := unix.Open(n.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("enter a network: %w", &os.PathError{Op: "open", Path: n.Path, Err: err})
	}
	err = errors.Join(unix.Setns(fd, unix.CLONE_NEWNET), unix.Close(fd))
	if err != nil {
		return fmt.Errorf("enter a network: %w", err)
	}
	return nil
}
