package main

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// network is the way to a server. It can be cut, as for a laptop that leaves its network or sleeps.
type network struct {
	address string
	server  string
	mu      sync.Mutex
	isCut   bool
	open    []net.Conn
	refused atomic.Int64
}

// newNetwork leads to the server of a site.
func newNetwork(t *testing.T, s *transferSite) *network {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{address: "http://" + listener.Addr().String(), server: strings.TrimPrefix(s.address, "http://")}
	var carriers sync.WaitGroup
	carriers.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			carriers.Go(func() { n.carry(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		n.cut()
		carriers.Wait()
	})
	return n
}

// carry carries a connection, or resets it.
func (n *network) carry(client net.Conn) {
	server, err := n.connect(client)
	if err != nil {
		_ = client.(*net.TCPConn).SetLinger(0)
		_ = client.Close()
		n.refused.Add(1)
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
}

func (n *network) connect(client net.Conn) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isCut {
		return nil, net.ErrClosed
	}
	server, err := net.Dial("tcp", n.server)
	if err == nil {
		n.open = append(n.open, client, server)
	}
	return server, err
}

// cut ends all connections, and refuses new ones.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = true
	for _, c := range n.open {
		_ = c.Close()
	}
	n.open = nil
}

// heal ends the cut after some more connections were refused.
func (n *network) heal(t *testing.T, after int64) {
	t.Helper()
	before := n.refused.Load()
	testenv.Await(t, "refused connections", func() bool { return n.refused.Load() >= before+after })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = false
}

// A laptop sleeps for a night: its connections are cut, the token has ended when it wakes, and then its network is not
// there at once. The bundle has ended meanwhile.
func TestWaitsAndWatchesGoOnAfterANightWithoutANetwork(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		args       []string
		sees, want string
		code       int
	}{
		{"wait", []string{"wait"}, "", "\nkilled\n", 1},
		{"wait for several", []string{"wait", "--first-failure", "other"}, "", "train(UUID) killed\n", 1},
		{"wait --tail", []string{"wait", "--tail"}, "", "\nkilled\n", 1},
		{"list", []string{"ls", "--watch", "-f", "name,state"}, "train  staged", "train  killed", 130},
		{"objects", []string{"ls", "--watch", "--json"}, `"state":"staged"`, `"state":"killed"`, 130},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			uuid := s.aRun(t, "train", "true")
			s.aRun(t, "other", "true")
			var slept atomic.Int64
			n := newNetwork(t, s)
			args := append(test.args, "--server", n.address)
			if test.args[0] == "wait" {
				args = append(args, uuid)
			}
			run := s.startAt(t, func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }, args...)
			if test.sees != "" {
				run.prints(t, test.sees)
			} else {
				s.awaitCalls(t, "/rest/bundles", 10) // the first ones find the bundles, and all others are the wait's
			}
			n.cut()
			slept.Store(int64(9 * time.Hour))
			s.ends(t, 0, "kill", uuid)
			run.tells(t, "cannot reach the server at "+n.address)
			n.heal(t, 2)
			if test.code == 130 {
				run.prints(t, test.want)
				run.interrupt(t)
			} else if code := testenv.Receive(t, "the end of cl", run.code); code != test.code {
				t.Errorf("exit code %d", code)
			}
			errs := run.errs.String()
			if strings.Count(errs, "cannot reach") != 1 || strings.Count(errs, "cl: the server answers again\n") != 1 {
				t.Errorf("cl tells %q", errs)
			}
			if want := strings.ReplaceAll(test.want, "UUID", uuid); test.code == 1 && !strings.Contains(errs, want) {
				t.Errorf("cl tells %q, want %q", errs, want)
			}
		})
	}
}

func TestTopGoesOnAfterItsConnectionsWereCut(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	uuid := s.aRun(t, "train", "true")
	n := newNetwork(t, s)
	c := openConsole(t, 80, 12, append(s.consoleEnv(), "CL_SERVER="+n.address), "top", uuid)
	c.sees("staged")
	n.cut()
	s.ends(t, 0, "kill", uuid)
	c.sees("The server has not answered for ")
	n.heal(t, 2)
	c.sees("killed")
	c.seesNot("The server has not answered")
	c.types("q")
	c.ends(0)
}
