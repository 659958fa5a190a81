package transfer

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A new limit holds for the downloads under way, larger or smaller, and all bytes are counted.
func TestPaceChangesDuringADownload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(0)
		r := p.Reader(t.Context(), bytes.NewReader(make([]byte, 64<<20)))
		read := func(bytes int64) time.Duration {
			began := time.Now()
			if _, err := io.CopyN(io.Discard, r, bytes); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		if took := read(16 << 20); took != 0 {
			t.Errorf("without a limit it took %s", took)
		}
		p.SetLimit(1 << 20)
		if took := read(16 << 20); took < 14*time.Second || took > 17*time.Second {
			t.Errorf("16 MiB at 1 MiB/s took %s", took)
		}
		p.SetLimit(0)
		if took := read(16 << 20); took > time.Second {
			t.Errorf("once the limit was removed it took %s", took)
		}
		if p.Read() < 48<<20 {
			t.Errorf("%d bytes are counted", p.Read())
		}
	})
}
