package imagetest

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Names starts a name service for as long as a test runs, and returns a resolver
// that asks it. The service has these hosts at 127.0.0.1, and knows no others.
func Names(tb testing.TB, hosts ...string) *net.Resolver {
	tb.Helper()
	service, err := new(net.ListenConfig).ListenPacket(tb.Context(), "udp", "127.0.0.1:0")
	check(tb, err)
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

// answerName answers a question of the domain name system (RFC 1035, 4.1).
func answerName(question []byte, hosts []string) []byte {
	const (
		header, typeA   = 12, 1
		response        = 0x8180 // recursion desired and available
		nameError       = 3
		pointerToHeader = 0xc000 | header
	)
	var labels []string
	end := header
	for end < len(question) && question[end] != 0 {
		next := end + 1 + int(question[end])
		labels = append(labels, string(question[end+1:min(next, len(question))]))
		end = next
	}
	end += 5 // the root, the type, the class
	if end > len(question) {
		return nil
	}
	kind := binary.BigEndian.Uint16(question[end-4:])
	known := slices.Contains(hosts, strings.ToLower(strings.Join(labels, ".")))
	code, answers := uint16(response), uint16(0)
	switch {
	case !known:
		code |= nameError
	case kind == typeA:
		answers = 1
	}
	out := slices.Clone(question[:2]) // the question's ID
	for _, n := range []uint16{code, 1, answers, 0, 0} {
		out = binary.BigEndian.AppendUint16(out, n)
	}
	out = append(out, question[header:end]...)
	if answers == 0 {
		return out
	}
	out = binary.BigEndian.AppendUint16(out, pointerToHeader)
	for _, n := range []uint16{typeA, 1, 0, 60, 4} { // Internet, a minute, four bytes
		out = binary.BigEndian.AppendUint16(out, n)
	}
	return append(out, 127, 0, 0, 1)
}
