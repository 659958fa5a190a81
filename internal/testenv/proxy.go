package testenv

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
)

// Proxy is a connection to a schema of Postgres that a test can break.
type Proxy struct {
	// URL is the schema's, through the proxy.
	URL string

	listener net.Listener
	server   string // its socket

	running sync.WaitGroup // its goroutines

	mu     sync.Mutex
	isDown bool
	sent   int
	next   Breakage
	open   map[net.Conn]bool // both ends of all connections
	// unnoticed has the servers' ends that stay open until the proxy goes down.
	unnoticed map[net.Conn]bool
}

// Breakage is the fault that a Proxy injects into the next commit.
type Breakage struct {
	// Arrives lets the commit reach the server, so that only its answer is lost.
	Arrives bool
	// Unnoticed leaves the server's end of the connection open, as a cut network does. The server
	// then waits in the middle of the transaction.
	Unnoticed bool
	// Down makes the proxy go down with the commit.
	Down bool

	wanted bool
}

// PostgresProxy starts a proxy to an empty schema. It ends with the test.
func PostgresProxy(tb testing.TB) *Proxy {
	tb.Helper()
	u, err := url.Parse(Postgres(tb))
	Must(tb, err)
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	Must(tb, err)
	q := u.Query()
	p := &Proxy{listener: l, server: filepath.Join(q.Get("host"), ".s.PGSQL."+q.Get("port")), open: map[net.Conn]bool{}, unnoticed: map[net.Conn]bool{}}
	host, port, err := net.SplitHostPort(l.Addr().String())
	Must(tb, err)
	q.Set("host", host)
	q.Set("port", port)
	q.Set("sslmode", "disable")
	u.User, u.RawQuery = url.UserPassword("cltest", "cltest"), q.Encode()
	p.URL = u.String()
	p.running.Go(p.serve)
	tb.Cleanup(func() {
		p.Down()
		Must(tb, l.Close())
		p.running.Wait()
	})
	return p
}

// Down breaks all connections. New ones end at once until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down()
}

func (p *Proxy) down() {
	p.isDown = true
	for c := range p.open {
		_ = c.Close() // its other end may have closed it
	}
	clear(p.open)
	clear(p.unnoticed)
}

// Up restores the connections after Down.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isDown = false
}

// BreakCommit breaks the connection of the next commit.
func (p *Proxy) BreakCommit(how Breakage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.next.wanted = how, true
}

// Sent returns the number of pieces of data that clients have sent. A statement, or its parameters, is one piece, or some more
// if it is long.
func (p *Proxy) Sent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// Broke reports whether that has happened.
func (p *Proxy) Broke() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.next.wanted
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := p.dial(client)
		if err != nil {
			_ = client.Close() // nothing was sent
			continue
		}
		var mine Breakage // of this connection; the answer comes after the commit
		commits := func(data []byte) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.sent++
			if !p.next.wanted || !bytes.Contains(data, []byte("COMMIT\x00")) {
				return true
			}
			mine, p.next.wanted = p.next, false
			p.unnoticed[server] = mine.Unnoticed
			if !mine.Arrives && mine.Down {
				p.down()
			}
			return mine.Arrives
		}
		answers := func([]byte) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if mine.wanted && mine.Down {
				p.down()
			}
			return !mine.wanted
		}
		p.running.Go(func() { p.carry(server, client, commits) })
		p.running.Go(func() { p.carry(client, server, answers) })
	}
}

// dial connects a client with the server, unless the proxy is down.
func (p *Proxy) dial(client net.Conn) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isDown {
		return nil, net.ErrClosed
	}
	server, err := net.Dial("unix", p.server)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	p.open[client], p.open[server] = true, true
	return server, nil
}

// carry copies data until passes returns false.
func (p *Proxy) carry(to, from net.Conn, passes func([]byte) bool) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, end := range []net.Conn{to, from} {
			if p.open[end] && !p.unnoticed[end] {
				_ = end.Close() // its other end may have closed it
				delete(p.open, end)
			}
		}
	}()
	data := make([]byte, 1<<16)
	for {
		n, err := from.Read(data)
		if err != nil || !passes(data[:n]) {
			return
		}
		if _, err := to.Write(data[:n]); err != nil {
			return
		}
	}
}
