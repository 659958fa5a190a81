package source_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// resolverOf starts a name service for the duration of a test, and returns a resolver that asks it.
// The service has these hosts at 127.0.0.1, and no others.
func resolverOf(t *testing.T, hosts ...string) *net.Resolver {
	t.Helper()
	service, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	t.Cleanup(func() {
		_ = service.Close()
		serving.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", service.LocalAddr().String())
	}}
}

// answerName answers a question of Go's resolver (RFC 1035, 4.1).
func answerName(message []byte, hosts []string) []byte {
	const header = 12
	name, _, _ := bytes.Cut(message[header:], []byte{0})
	question := message[header : header+len(name)+5] // the root, two bytes of type, two of class
	known := slices.ContainsFunc(hosts, func(host string) bool {
		encoded := ""
		for label := range strings.SplitSeq(host, ".") {
			encoded += string(rune(len(label))) + label
		}
		return strings.EqualFold(encoded, string(name))
	})
	code, answer := byte(3), []byte(nil) // no such name
	if known {
		code = 0
	}
	if kind := question[len(name)+2]; known && kind == 1 { // an address: the name again, a minute, four bytes
		answer = []byte{0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1}
	}
	return slices.Concat(message[:2], []byte{0x81, 0x80 | code, 0, 1, 0, byte(min(len(answer), 1)), 0, 0, 0, 0}, question, answer)
}
