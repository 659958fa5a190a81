package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"
)

// Command is the hidden argument with which a program runs [Main]. The port follows.
const Command = "container-connect"

// connected is Main's output before the connection's bytes.
const connected = "ok\n"

const (
	dialTimeout = 10 * time.Second
	// lingerTimeout limits the time that Main waits for more data after the end of its input. Its
	// caller may be gone, which Main cannot notice.
	lingerTimeout = 10 * time.Minute
)

// Main connects its standard input and output with a port on localhost. It returns the exit status
// for the program. If it cannot connect, it prints the reason on standard error.
func Main(args []string) int {
	port := 0
	err := errors.New("want a port")
	if len(args) == 1 {
		port, err = strconv.Atoi(args[0])
	}
	var conn *net.TCPConn
	if err == nil {
		conn, err = dialLocal(port)
	}
	if err == nil {
		_, err = io.WriteString(os.Stdout, connected)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	join(conn)
	return 0
}

// dialLocal connects to a port on localhost, by IPv4 or IPv6.
func dialLocal(port int) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	return dialPort(ctx, []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, port)
}

func dialPort(ctx context.Context, addresses []netip.Addr, port int) (*net.TCPConn, error) {
	first := error(nil)
	for _, host := range addresses {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host.String(), strconv.Itoa(port)))
		if tcp, ok := conn.(*net.TCPConn); err == nil && ok {
			return tcp, nil
		}
		if first == nil {
			first = err
		}
	}
	if op, ok := errors.AsType[*net.OpError](first); ok { // its text has addresses
		first = op.Err
	}
	if sys, ok := errors.AsType[*os.SyscallError](first); ok {
		first = sys.Err
	}
	return nil, fmt.Errorf("port %d of the container: %w", port, first)
}

// join copies both ways until the connection's other end has sent everything.
func join(conn *net.TCPConn) {
	var sending sync.WaitGroup
	sending.Go(func() { // ends with this process
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.CloseWrite()
		time.AfterFunc(lingerTimeout, func() { _ = conn.Close() })
	})
	_, _ = io.Copy(os.Stdout, conn)
}
