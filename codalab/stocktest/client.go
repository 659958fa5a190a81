package stocktest

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Address is the server's address for the callers that use its Client.
const Address = "http://stock.invalid"

// Client returns a client that calls the server over pipes instead of a network. It works in a
// bubble of testing/synctest, if New was called in the same bubble.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: s.pipes.dial, MaxIdleConnsPerHost: 32}}
}

// pipes is a net.Listener. It accepts the ends of in-memory pipes (net.Pipe).
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() *pipes {
	p := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.dialed <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for a caller.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close refuses further connections.
func (p *pipes) Close() error {
	p.close()
	return nil
}

// Addr returns a made-up address.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: Address, Net: "pipe"} }
