// Package pipenet is a network of pipes in memory (net.Pipe). A server and its clients work over it in
// one bubble of testing/synctest, which sockets do not allow.
package pipenet

import (
	"context"
	"net"
	"sync"
)

// Listener is a net.Listener that accepts the ends of pipes. It is safe for concurrent use.
type Listener struct {
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

// Listen returns a listener. A listener made in a synctest bubble serves only that bubble.
func Listen() *Listener {
	l := &Listener{dialed: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Dial connects to the listener, whatever the address is. It blocks until the connection is accepted,
// and fails with net.ErrClosed after Close. It can be the DialContext of an http.Transport.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.dialed <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for a caller. It fails with net.ErrClosed after Close.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialed:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close refuses further connections. Existing connections stay open.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr returns a made-up address.
func (*Listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
