package contents

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/connections"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
)

// errProxyClosed means that git has ended.
var errProxyClosed = errors.New("the proxy is closed")

// gitProxy is the HTTP proxy through which one start of git reaches the network. It dials as uploads by
// URL do, so that git does not reach private addresses, however it comes to one. Bytes that come in are
// reserved from the quota before git gets them.
type gitProxy struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	password string // other users of this machine do not know it
	url      string // for git
	guard    *connections.Guard
	server   *http.Server
	forward  *httputil.ReverseProxy // of requests for http URLs

	ended <-chan struct{} // closed when the server has ended

	mu      sync.Mutex
	reserve func(int64) error
	failed  error // the first failure; nothing comes in after it
}

// newGitProxy starts a proxy, which the caller closes.
func newGitProxy(ctx context.Context, private outbound.Places, reserve func(int64) error) (*gitProxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	// Other users of this machine may connect, too. Git has a few connections at a time.
	guard := connections.New(listener, connections.Limits{All: 16, Spare: 1, RetryAfter: time.Second})
	p := &gitProxy{dial: private.DialContext, reserve: reserve, password: rand.Text(), guard: guard}
	p.url = (&url.URL{Scheme: "http", User: url.UserPassword("git", p.password), Host: listener.Addr().String()}).String()
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // git tells what fails
	p.forward = &httputil.ReverseProxy{
		Transport: &http.Transport{DialContext: p.connect, DisableCompression: true, DisableKeepAlives: true},
		Rewrite:   func(*httputil.ProxyRequest) {}, ErrorLog: quiet,
	}
	p.server = &http.Server{
		Handler: guard.Handler(p, func(*http.Request) bool { return false }), ConnContext: guard.ConnContext,
		ErrorLog: quiet, ReadHeaderTimeout: answerTimeout, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	p.ended = background.Go(func() { _ = p.server.Serve(guard) }) // until close
	return p, nil
}

// close ends the proxy, and returns its first failure.
func (p *gitProxy) close() error {
	_ = p.server.Close() // of connections that nobody uses
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	failed := p.failed
	p.failed = errProxyClosed
	return failed
}

// ServeHTTP passes on a request of git's.
func (p *gitProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	login := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	if _, password, _ := login.BasicAuth(); subtle.ConstantTimeCompare([]byte(password), []byte(p.password)) == 0 {
		http.Error(w, "this proxy is git's", http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		p.forward.ServeHTTP(w, r)
		return
	}
	there, err := p.connect(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, "no connection", http.StatusBadGateway)
		return
	}
	here, sent, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = there.Close()
		return
	}
	var copying sync.WaitGroup // each direction ends the other
	copying.Go(func() {
		_, _ = io.Copy(there, sent)
		_ = there.Close()
	})
	if _, err = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
		_, _ = io.Copy(here, there)
	}
	_ = here.Close()
	copying.Wait()
}

// connect dials, and returns a connection of which all that comes in is reserved.
func (p *gitProxy) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.dial(ctx, network, address)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.fail(fetchFailed(err))
		return nil, err
	}
	return reservedConn{conn, p}, nil
}

func (p *gitProxy) fail(err error) {
	if p.failed == nil {
		p.failed = err
	}
}

// take reserves n bytes that came in.
func (p *gitProxy) take(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = p.reserve(int64(n))
	}
	return p.failed
}

// reservedConn is a connection to a server that a user names.
type reservedConn struct {
	net.Conn
	proxy *gitProxy
}

// Read fails if the bytes exceed the quota.
func (c reservedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		if err := c.proxy.take(n); err != nil {
			return 0, err
		}
	}
	return n, err
}
