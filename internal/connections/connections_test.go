package connections_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/connections"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// site is a server whose requests for /held wait until the test ends.
type site struct {
	t     *testing.T
	guard *connections.Guard
	held  chan struct{} // gets an element for each held request
}

// elsewhere is a listener whose clients have the addresses that they write first, as a line.
type elsewhere struct{ net.Listener }

type from struct {
	net.Conn
	address string
}

// RemoteAddr is the address that the client has chosen.
func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address)} }

func (l elsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	var line []byte
	for b := make([]byte, 1); err == nil; {
		if _, err = c.Read(b); b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	return from{c, string(line)}, err
}

func newSite(t *testing.T, limits connections.Limits) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	s := &site{t: t, guard: connections.New(elsewhere{l}, limits), held: make(chan struct{})}
	end := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /quick", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "quick") })
	mux.HandleFunc("GET /held", func(http.ResponseWriter, *http.Request) {
		s.held <- struct{}{}
		<-end
	})
	mux.HandleFunc("GET /released", func(_ http.ResponseWriter, r *http.Request) {
		connections.Release(r.Context())
		s.held <- struct{}{}
		<-r.Context().Done()
	})
	web := &http.Server{
		ConnContext: s.guard.ConnContext,
		Handler:     s.guard.Handler(mux, func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(s.guard) }()
	t.Cleanup(func() {
		close(end)
		testenv.Must(t, web.Close())
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

// dial opens a connection from an address.
func (s *site) dial(address string) net.Conn {
	s.t.Helper()
	c, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", s.guard.Addr().String())
	testenv.Must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, address+"\n")
	testenv.Must(s.t, err)
	return c
}

// ask sends a request, and returns the status and the body; 0 if the server has closed the connection.
func ask(c net.Conn, path string) (status int, body string, header http.Header) {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return 0, "", nil
	}
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, "", nil
	}
	text, _ := io.ReadAll(a.Body)
	_ = a.Body.Close()
	a.Header.Set("X-Closed", strconv.FormatBool(a.Close))
	return a.StatusCode, string(text), a.Header
}

// idle opens a connection that has had its first answer, and waits now.
func (s *site) idle(address string) net.Conn {
	s.t.Helper()
	c := s.dial(address)
	if status, _, _ := ask(c, "/quick"); status != http.StatusOK {
		s.t.Fatalf("a connection from %s: %d", address, status)
	}
	return c
}

// holds opens a connection that the server serves until the test ends.
func (s *site) holds(address, path string) {
	s.t.Helper()
	c := s.dial(address)
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	testenv.Must(s.t, err)
	testenv.Receive(s.t, "the server holds a request", s.held)
}

func isOpen(c net.Conn) bool {
	status, _, _ := ask(c, "/quick")
	return status == http.StatusOK
}

func limits() connections.Limits {
	return connections.Limits{All: 8, OfAddress: 6, Spare: 2, RetryAfter: 7 * time.Second}
}

// Idle connections cost their clients nothing. They must not keep others out.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t, limits())
	var idle []net.Conn
	for range 30 {
		idle = append(idle, s.idle("192.0.2.1"))
	}
	if n := s.guard.Counts(); n.All > 6 || n.Spare != 0 {
		t.Errorf("one address has %+v", n)
	}
	if !isOpen(idle[29]) || isOpen(idle[0]) {
		t.Error("the address has not lost its oldest connections")
	}
	theirs := s.idle("192.0.2.2")
	for range 5 {
		s.idle("192.0.2.3")
	}
	if !isOpen(theirs) {
		t.Error("an address with one connection has lost it to others that have more")
	}
	if n := s.guard.Counts(); n.All != 8 {
		t.Errorf("there are %+v", n)
	}
}

func TestAddressesOfASiteShareItsConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, limits())
	for i := range 30 {
		s.idle(fmt.Sprintf("2001:db8:1:%x::1", i))
	}
	if n := s.guard.Counts(); n.All > 6 {
		t.Errorf("the addresses of one site have %+v", n)
	}
}

// A client that sends its headers byte by byte is waited for, like one that sends none.
func TestUnfinishedHeadersMakeRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t, limits())
	for range 20 {
		_, err := io.WriteString(s.dial("192.0.2.1"), "GET /quick HTT")
		testenv.Must(t, err)
	}
	if status, _, _ := ask(s.dial("192.0.2.1"), "/healthz"); status != http.StatusOK {
		t.Errorf("health: %d", status)
	}
}

func TestHealthIsServedWhileAllConnectionsAreInUse(t *testing.T) {
	t.Parallel()
	var full atomic.Int64
	narrow := limits()
	narrow.Full = func() { full.Add(1) }
	s := newSite(t, narrow)
	for i := range 8 {
		s.holds(fmt.Sprintf("192.0.2.%d", i), "/held")
	}
	if full.Load() != 0 {
		t.Error("a connection is said to be too many, and was not")
	}
	for range 20 { // they take the places for spare connections
		s.dial("192.0.2.9")
	}
	status, body, header := ask(s.dial("192.0.2.10"), "/healthz")
	if status != http.StatusOK || body != "ok" || header.Get("X-Closed") != "true" {
		t.Errorf("health: %d %q, %v", status, body, header)
	}
	status, body, header = ask(s.dial("192.0.2.11"), "/quick")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "8 connections, the most") || header.Get("Retry-After") != "7" {
		t.Errorf("another request: %d %q, %v", status, body, header)
	}
	if n := s.guard.Counts(); n.All != 8 || n.Spare > 2 || full.Load() != 22 {
		t.Errorf("there are %+v, and %d were said to be too many", n, full.Load())
	}
}

func TestOneAddressCannotHoldAllConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, limits())
	for range 6 {
		s.holds("192.0.2.1", "/held")
	}
	if status, _, _ := ask(s.dial("192.0.2.1"), "/quick"); status != http.StatusServiceUnavailable {
		t.Errorf("a seventh connection of the address: %d", status)
	}
	if status, _, _ := ask(s.dial("192.0.2.2"), "/quick"); status != http.StatusOK {
		t.Errorf("another address: %d", status)
	}
}

// A worker can do without its doorbell.
func TestReleasedConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t, limits())
	for i := range 8 {
		s.holds(fmt.Sprintf("192.0.2.%d", i), "/released")
	}
	if status, _, _ := ask(s.dial("192.0.2.9"), "/quick"); status != http.StatusOK {
		t.Errorf("a request: %d", status)
	}
}

func TestConnectionsWithTLSAreBounded(t *testing.T) {
	t.Parallel()
	held, end := make(chan struct{}), make(chan struct{})
	web := httptest.NewUnstartedServer(nil)
	guard := connections.New(web.Listener, connections.Limits{All: 1, Spare: 1, RetryAfter: time.Second})
	web.Listener, web.Config.ConnContext = guard, guard.ConnContext
	web.Config.Handler = guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		held <- struct{}{}
		<-end
	}), func(*http.Request) bool { return false })
	web.StartTLS()
	defer web.Close()
	first := make(chan error, 1)
	client := web.Client() // a held connection is not used again
	go func() {
		a, err := client.Get(web.URL)
		if err == nil {
			err = a.Body.Close()
		}
		first <- err
	}()
	testenv.Receive(t, "the first request is held", held)
	a, err := client.Get(web.URL)
	testenv.Must(t, err)
	if err := a.Body.Close(); err != nil || a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the second request: %d, %v", a.StatusCode, err)
	}
	close(end)
	testenv.Must(t, <-first)
}

// Connections of others, as in tests, are served without bounds.
func TestForeignConnectionsAreServed(t *testing.T) {
	t.Parallel()
	g := connections.New(nil, limits())
	if ctx := g.ConnContext(t.Context(), nil); ctx != t.Context() {
		t.Error("a foreign connection has a context of its own")
	}
	connections.Release(context.Background())
}

func TestDescriptorsAreCounted(t *testing.T) {
	t.Parallel()
	if n, err := connections.Descriptors(); err != nil || n < 64 {
		t.Errorf("%d, %v", n, err)
	}
}
