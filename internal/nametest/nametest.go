// Package nametest has a name service for tests.
package nametest

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Resolver starts a name service for the duration of a test, and returns a resolver that asks it. The
// service has these hosts with their IPv4 addresses, and no others.
func Resolver(tb testing.TB, hosts map[string]netip.Addr) *net.Resolver {
	tb.Helper()
	service, err := new(net.ListenConfig).ListenPacket(tb.Context(), "udp", "127.0.0.1:0")
	testenv.Must(tb, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		question := make([]byte, 1500)
		for {
			n, from, err := service.ReadFrom(question)
			if err != nil {
				return // closed
			}
			_, _ = service.WriteTo(answerName(question[:n], hosts), from) // without an answer the resolver asks again
		}
	})
	tb.Cleanup(func() {
		_ = service.Close()
		serving.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", service.LocalAddr().String())
	}}
}

// answerName answers a question of Go's resolver (RFC 1035, 4.1).
func answerName(message []byte, hosts map[string]netip.Addr) []byte {
	const header = 12
	name, _, _ := bytes.Cut(message[header:], []byte{0})
	question := message[header : header+len(name)+5] // the root, two bytes of type, two of class
	var ip netip.Addr
	for host, address := range hosts {
		encoded := ""
		for label := range strings.SplitSeq(host, ".") {
			encoded += string([]byte{byte(len(label))}) + label //nolint:gosec // 63 at most
		}
		if strings.EqualFold(encoded, string(name)) {
			ip = address
		}
	}
	code, answer := byte(3), []byte(nil) // no such name
	if ip.IsValid() {
		code = 0
	}
	if kind := question[len(name)+2]; ip.IsValid() && kind == 1 { // an address: the name again, a minute, four bytes
		answer = append([]byte{0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4}, ip.AsSlice()...)
	}
	return slices.Concat(message[:2], []byte{0x81, 0x80 | code, 0, 1, 0, byte(min(len(answer), 1)), 0, 0, 0, 0}, question, answer)
}
