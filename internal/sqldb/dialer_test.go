package sqldb

import (
	"net"
	"testing"
	"time"
)

func TestSilentServerTimesOut(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // which takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // only a test's
	silent := dialer{within: 10 * time.Millisecond}
	c, err := silent.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // only a test's
	for range 2 {
		if _, err = c.Read(make([]byte, 1)); !isGone(err) {
			t.Errorf("read: %v, want a time-out that counts as a broken connection", err)
		}
	}
	for err = nil; err == nil; { // until all buffers on the way are full
		_, err = c.Write(make([]byte, 1<<20))
	}
	if !isGone(err) {
		t.Errorf("write: %v", err)
	}
}
