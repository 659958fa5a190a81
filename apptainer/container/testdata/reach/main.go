// Command reach tries, from inside a container, to reach services of the host, and prints what answers.
//
//	reach tcp ADDRESS…         prints the greeting of each address
//	reach unix NAME            the same for an abstract socket
//	reach names NAME…          prints the addresses of each name
//	reach listen PORT          listens on a port of its own network
//	reach around DEVICE HOST…  sends packets to these addresses of this host by all ways around its routes; "any" is the
//	                           first device that is not the loopback interface
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	switch args := os.Args[2:]; os.Args[1] {
	case "tcp", "unix":
		for _, address := range args {
			fmt.Printf("%s: %s\n", address, greeting(os.Args[1], address))
		}
	case "names":
		for _, name := range args {
			addresses, err := net.DefaultResolver.LookupHost(context.Background(), name)
			fmt.Println(name, strings.Join(addresses, " "), errorText(err))
		}
	case "listen":
		if _, err := net.Listen("tcp4", ":"+args[0]); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("listens")
	case "around":
		if args[0] == "any" {
			args[0] = otherDevice()
		}
		for _, host := range args[1:] {
			at := netip.MustParseAddrPort(host)
			fmt.Println("stream:", errorText(stream(args[0], at)))
			fmt.Println("packet:", errorText(packet(args[0], at)))
			fmt.Println("frame:", errorText(frame(args[0], at)))
		}
	}
}

// otherDevice returns the name of the first device that is not the loopback interface, or "".
func otherDevice() string {
	all, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, device := range all {
		if device.Flags&net.FlagLoopback == 0 {
			return device.Name
		}
	}
	return ""
}

// routerOf returns the hardware address of a neighbour on a device, or slirp's, which nobody checks.
func routerOf(device string) net.HardwareAddr {
	table, err := os.ReadFile("/proc/net/arp")
	if err == nil {
		for line := range strings.Lines(string(table)) {
			fields := strings.Fields(line)
			if len(fields) == 6 && fields[5] == device {
				if at, err := net.ParseMAC(fields[3]); err == nil {
					return at
				}
			}
		}
	}
	return net.HardwareAddr{0x52, 0x55, 10, 0, 2, 2}
}

// errorText returns the error's text, or "sent".
func errorText(err error) string {
	if err == nil {
		return "sent"
	}
	return err.Error()
}

func greeting(network, address string) string {
	conn, err := net.Dial(network, address)
	if err != nil {
		return "no: " + err.Error()
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return "no: " + err.Error()
	}
	return string(bytes.TrimSpace(text))
}

// stream begins a connection by an interface that does not lead to the address.
func stream(device string, to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.BindToDevice(fd, device)
	}
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	}
	if err == unix.EINPROGRESS {
		err = nil
	}
	return err
}

// packet sends a datagram by an interface that does not lead to the address.
func packet(device string, to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err == nil {
		err = unix.BindToDevice(fd, device)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	}
	if err == nil {
		err = unix.Sendto(fd, []byte("packet"), 0, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	}
	return err
}

// frame sends a datagram in a frame of its own making.
func frame(device string, to netip.AddrPort) error {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	addresses, err := link.Addrs()
	if err != nil {
		return err
	}
	from := netip.MustParsePrefix(addresses[0].String()).Addr().As4()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	data := []byte("frame")
	udp := binary.BigEndian.AppendUint16(nil, 5555)
	udp = binary.BigEndian.AppendUint16(udp, to.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(data)))
	udp = append(binary.BigEndian.AppendUint16(udp, 0), data...)
	ip := []byte{0x45, 0, 0, byte(20 + len(udp)), 0, 1, 0, 0, 64, 17, 0, 0}
	target := to.Addr().As4()
	ip = append(append(ip, from[:]...), target[:]...)
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	text := append([]byte(routerOf(device)), link.HardwareAddr...)
	text = append(append(binary.BigEndian.AppendUint16(text, unix.ETH_P_IP), ip...), udp...)
	return unix.Sendto(fd, text, 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Protocol: 0x0008, Halen: 6})
}
