package privatenet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Relay returns the address in a container at which the relay to its name server of this number listens.
// The first is that of Docker's own relay (libnetwork/resolver_unix.go).
func Relay(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 0, 0, byte(11 + number)}) //nolint:gosec // resolvers read three
}

// dnsPort is the port of name servers.
const dnsPort = 53

const (
	// answerWithin limits the wait for a name server. A resolver waits for five seconds (resolv.conf(5): timeout), up
	// to thirty.
	answerWithin = 30 * time.Second
	// mostQuestions limits the questions of a container that wait for an answer.
	mostQuestions = 256
	// largestQuestion is the largest packet of UDP.
	largestQuestion = 64 << 10
)

// relay carries questions from a container to a name server, and the answers back.
type relay struct {
	packets   net.PacketConn
	streams   net.Listener
	server    string
	questions chan struct{} // holds an entry for each that waits
}

// listen makes a relay that listens in the calling thread's network namespace.
func listen(at netip.Addr, server netip.AddrPort) (*relay, error) {
	address := netip.AddrPortFrom(at, dnsPort).String()
	packets, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp4", address)
	if err != nil {
		return nil, fmt.Errorf("relay to a name server: %w", err)
	}
	streams, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", address)
	if err != nil {
		_ = packets.Close()
		return nil, fmt.Errorf("relay to a name server: %w", err)
	}
	return &relay{packets: packets, streams: streams, server: server.String(), questions: make(chan struct{}, mostQuestions)}, nil
}

// serve serves in the background while this process lives.
func (r *relay) serve() {
	background.Detach(r.servePackets) // ends with this process
	background.Detach(r.serveStreams) // ends with this process
}

func (r *relay) servePackets() {
	for {
		question := make([]byte, largestQuestion)
		n, from, err := r.packets.ReadFrom(question)
		if err != nil {
			return
		}
		r.questions <- struct{}{}
		background.Detach(func() { // ends after answerWithin
			defer func() { <-r.questions }()
			if answer, err := r.ask(question[:n]); err == nil {
				_, _ = r.packets.WriteTo(answer, from) // who asked may be gone
			}
		})
	}
}

// ask returns the name server's answer to a packet.
func (r *relay) ask(question []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "udp", r.server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(question); err != nil {
		return nil, err
	}
	answer := make([]byte, largestQuestion)
	n, err := conn.Read(answer)
	return answer[:n], err
}

func (r *relay) serveStreams() {
	for {
		conn, err := r.streams.Accept()
		if err != nil {
			return
		}
		r.questions <- struct{}{}
		background.Detach(func() { // ends after answerWithin
			defer func() { <-r.questions }()
			r.join(conn)
		})
	}
}

// join connects a container's connection with the name server, for at most answerWithin.
func (r *relay) join(conn net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	defer conn.Close()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", r.server)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = conn.Close(), server.Close() })()
	sent := background.Go(func() { copyHalf(server, conn) })
	copyHalf(conn, server)
	<-sent
}

// copyHalf copies one direction of a connection, and ends it.
func copyHalf(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
