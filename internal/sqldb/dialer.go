package sqldb

import (
	"context"
	"net"
	"time"
)

// dialer makes connections on which each read and write fails after some time.
// Without that, a caller would wait for a server or a network that falls silent until
// TCP gives up, a quarter of an hour. It is a pq.DialerContext.
type dialer struct {
	net.Dialer
	within time.Duration
}

// DialContext makes a connection.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return deadlineConn{Conn: c, within: d.within}, nil
}

// DialTimeout completes pq.Dialer, which calls DialContext in its place.
func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// deadlineConn is a connection on which every read and write has a deadline.
type deadlineConn struct {
	net.Conn
	within time.Duration
}

func (c deadlineConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(c.deadline()); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c deadlineConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(c.deadline()); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c deadlineConn) deadline() time.Time { return time.Now().Add(c.within) } //nolint:forbidigo // deadlines are moments
