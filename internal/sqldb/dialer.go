package sqldb

import (
	"context"
	"net"
	"time"
)

// dialer makes connections whose other side has to go on within some time,
// once it was asked something. Without that, a server or a network that falls
// silent in the middle of an answer would be waited for until TCP gives up,
// a quarter of an hour. It is a pq.DialerContext.
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
	return impatient{Conn: c, within: d.within}, nil
}

// DialTimeout is asked for by pq.Dialer and not called, for the sake of
// DialContext.
func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// impatient is a connection on which every read and write has its deadline.
type impatient struct {
	net.Conn
	within time.Duration
}

func (c impatient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(c.deadline()); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c impatient) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(c.deadline()); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c impatient) deadline() time.Time { return time.Now().Add(c.within) } //nolint:forbidigo // deadlines are moments
