package connections

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/clientnet"
)

// Limits bound the open connections.
type Limits struct {
	// All is the number of connections without the spare ones.
	All int
	// OfAddress is the share of one address, or of the /48 of one with IPv6; 0 means All. Behind a proxy all connections have the proxy's address.
	OfAddress int
	// Spare is the number of spare connections.
	Spare int
	// RetryAfter is the time after which a client that was refused may try again.
	RetryAfter time.Duration
	// Full, if it is set, is called when a connection has to be a spare one, because all are in use.
	Full func()
}

// Guard bounds the connections of one listener. Its methods are safe for concurrent use.
type Guard struct {
	net.Listener

	limits Limits

	mu        sync.Mutex
	all       int // without the spare ones
	addresses map[string]*address
	spare     *address
}

// address has the connections of one address, or the spare ones.
type address struct {
	name    string
	conns   int
	waiting *list.List // of *conn; the first one has waited longest
}

// New returns a Guard of a listener. The caller serves from the Guard, and sets ConnContext and Handler of the
// http.Server.
func New(l net.Listener, limits Limits) *Guard {
	limits.OfAddress = cmp.Or(limits.OfAddress, limits.All)
	return &Guard{Listener: l, limits: limits, addresses: map[string]*address{}, spare: newAddress("")}
}

func newAddress(name string) *address { return &address{name: name, waiting: list.New()} }

// conn is an open connection.
type conn struct {
	net.Conn

	guard *Guard
	late  bool          // it is a spare one
	of    *address      // nil after its end
	place *list.Element // in of.waiting; nil while the connection is served
}

// Accept waits for the next connection, and closes those that are in its way.
func (g *Guard) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		one, closed := g.admit(c)
		if (one == nil || one.late) && g.limits.Full != nil {
			g.limits.Full()
		}
		if closed != nil {
			_ = closed.Close() // nobody waits for it
		}
		if one != nil {
			return one, nil
		}
	}
}

// admit adds a connection. It also returns one to close, which may be the new one.
func (g *Guard) admit(c net.Conn) (one *conn, closed net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.addresses[host(c)]
	if of == nil {
		of = newAddress(host(c))
	}
	var last *conn
	switch {
	case of.conns >= g.limits.OfAddress:
		last = of.first()
	case g.all >= g.limits.All:
		last = g.crowded().first()
	}
	if last != nil {
		g.remove(last)
		closed = last.Conn
	}
	if of.conns >= g.limits.OfAddress || g.all >= g.limits.All {
		of = g.spare
		if of.conns >= g.limits.Spare {
			last := of.first()
			if last == nil {
				return nil, c
			}
			g.remove(last)
			closed = last.Conn
		}
	}
	one = &conn{Conn: c, guard: g, late: of == g.spare}
	g.add(one, of)
	return one, closed
}

// host returns the address of a connection's client, of which IPv6 gives a site many (clientnet.Of).
func host(c net.Conn) string {
	remote := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return clientnet.Of(host)
	}
	return remote
}

// first returns the connection that has waited longest; nil if none waits.
func (a *address) first() *conn {
	if a == nil || a.waiting.Len() == 0 {
		return nil
	}
	c, _ := a.waiting.Front().Value.(*conn)
	return c
}

// crowded returns the address with the most connections among those that have a waiting one; nil if there is none.
// The caller of it and of the functions below holds g.mu.
func (g *Guard) crowded() (most *address) {
	for _, a := range g.addresses {
		if a.waiting.Len() > 0 && (most == nil || a.conns > most.conns) {
			most = a
		}
	}
	return most
}

func (g *Guard) add(c *conn, to *address) {
	c.of, c.place = to, to.waiting.PushBack(c)
	to.conns++
	if to != g.spare {
		g.all++
		g.addresses[to.name] = to
	}
}

func (g *Guard) remove(c *conn) {
	a := c.of
	if a == nil {
		return
	}
	if c.place != nil {
		a.waiting.Remove(c.place)
	}
	c.of, c.place = nil, nil
	a.conns--
	if a == g.spare {
		return
	}
	g.all--
	if a.conns == 0 {
		delete(g.addresses, a.name)
	}
}

// Close closes the connection, which then counts no more.
func (c *conn) Close() error {
	c.guard.mu.Lock()
	c.guard.remove(c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

// serve marks the connection as served, unless it is a spare one whose request is not always served. open is false if it
// is closed already.
func (c *conn) serve(always bool) (open, spare bool) {
	c.guard.mu.Lock()
	defer c.guard.mu.Unlock()
	if c.of == nil {
		return false, false
	}
	spare = c.late
	if c.place != nil && (always || !spare) {
		c.of.waiting.Remove(c.place)
		c.place = nil
	}
	return true, spare
}

// wait marks the connection as waiting from now on.
func (c *conn) wait() {
	c.guard.mu.Lock()
	defer c.guard.mu.Unlock()
	if c.of != nil && c.place == nil {
		c.place = c.of.waiting.PushBack(c)
	}
}

// key is the context's key for a request's connection.
type key struct{}

// ConnContext tells the requests of a connection which one it is. It is for http.Server.
func (*Guard) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if outer, ok := c.(interface{ NetConn() net.Conn }); ok { // tls.Conn
		c = outer.NetConn()
	}
	if one, ok := c.(*conn); ok {
		return context.WithValue(ctx, key{}, one)
	}
	return ctx
}

// Release tells that the client of a request can do without its connection, although a handler holds it.
func Release(ctx context.Context) {
	if c, ok := ctx.Value(key{}).(*conn); ok {
		c.wait()
	}
}

// Handler serves the requests of the listener's connections by next. On a spare connection it serves only those for
// which always is true.
func (g *Guard) Handler(next http.Handler, always func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(key{}).(*conn)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		needed := always(r)
		open, spare := c.serve(needed)
		if !open {
			panic(http.ErrAbortHandler) // nobody would get the answer
		}
		defer c.wait()
		if !spare {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		if needed {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", strconv.Itoa(int(g.limits.RetryAfter/time.Second)))
		http.Error(w, fmt.Sprintf("The server has %d connections, the most that it may have. Try again later.", g.limits.All), http.StatusServiceUnavailable)
	})
}

// Counts are the numbers of open connections.
type Counts struct {
	// All are the connections without the spare ones, Waiting those of them that wait.
	All, Waiting, Spare int
}

// Counts returns the numbers of open connections.
func (g *Guard) Counts() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := Counts{All: g.all, Spare: g.spare.conns}
	for _, a := range g.addresses {
		n.Waiting += a.waiting.Len()
	}
	return n
}
