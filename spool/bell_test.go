package spool

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func bell(t *testing.T) Bell {
	t.Helper()
	return mounted(t, t.TempDir()).Layout.Bell()
}

func ring(t *testing.T, b Bell, bundle string, attempt AttemptName) {
	t.Helper()
	must(t, b.Ring(bundle, attempt))
}

func takeRings(t *testing.T, b Bell) []Ring {
	t.Helper()
	rang, err := b.TakeRings("b1")
	must(t, err)
	slices.SortFunc(rang, func(x, y Ring) int {
		return cmp.Or(cmp.Compare(x.Bundle, y.Bundle), cmp.Compare(x.Attempt, y.Attempt))
	})
	return rang
}

func TestRingIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	b := bell(t)
	if rang := takeRings(t, b); len(rang) != 0 {
		t.Errorf("answered without a ring: %v", rang)
	}
	for range 3 {
		ring(t, b, "0x2", "1-b1")
	}
	ring(t, b, "0x1", "10-b1")
	ring(t, b, "0x1", "9-b1")
	want := []Ring{{"0x1", "10-b1"}, {"0x1", "9-b1"}, {"0x2", "1-b1"}}
	if d := gocmp.Diff(want, takeRings(t, b)); d != "" {
		t.Error(d)
	}
	if rang := takeRings(t, b); len(rang) != 0 {
		t.Errorf("answered again: %v", rang)
	}
	ring(t, b, "0x2", "1-b1")
	if d := gocmp.Diff([]Ring{{"0x2", "1-b1"}}, takeRings(t, b)); d != "" {
		t.Error(d)
	}
	if entries, err := os.ReadDir(b.dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// A worker writes a record and rings; a bridge answers and reads. However they
// interleave, the bridge has read the last record after it has answered the
// last ring.
func TestRingDuringAnAnswerIsNotLost(t *testing.T) {
	t.Parallel()
	b := bell(t)
	a := attempt(t)
	const last = 500
	done := make(chan error, 1)
	go func() {
		defer close(done)
		for i := range last + 1 {
			err := a.WriteStatus(Status{Token: "t", Usage: Usage{DiskBytes: int64(i)}})
			if err == nil {
				err = b.Ring("0x1", "1-b1")
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	seen := int64(-1)
	for over := false; !over; {
		select {
		case err := <-done:
			must(t, err)
			over = true // and answer once more
		default:
		}
		if len(takeRings(t, b)) == 0 {
			continue
		}
		s, err := a.ReadStatus()
		must(t, err)
		seen = s.Usage.DiskBytes
	}
	if seen != last {
		t.Errorf("the last record read is %d, the last written %d", seen, last)
	}
}

func TestStrangeEntriesAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := bell(t)
	strange := []string{"README", "0x1", "0x1.", ".1", "0x1.one", "0x1.1.2", "0x1.1-", "0x1.0-b1", "0x1.1-b1-b2", ".nfs0000001", ".0x1.1.swp"}
	for _, name := range strange {
		write(t, filepath.Join(b.dir, name), "")
	}
	ring(t, b, "0x1", "1-b1")
	if d := gocmp.Diff([]Ring{{"0x1", "1-b1"}}, takeRings(t, b)); d != "" {
		t.Error(d)
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil || len(entries) != len(strange) {
		t.Errorf("%d entries are left, want %d: %v, %v", len(entries), len(strange), entries, err)
	}
}

func TestEntryThatStaysHidesNoOther(t *testing.T) {
	t.Parallel()
	b := bell(t)
	must(t, os.MkdirAll(filepath.Join(b.dir, "0x1.1-b1", "full"), 0o700))
	ring(t, b, "0x0", "1-b1")
	ring(t, b, "0x2", "1-b1")
	rang, err := b.TakeRings("b1")
	if err == nil {
		t.Error("want an error for the one that stays")
	}
	if d := gocmp.Diff([]Ring{{"0x0", "1-b1"}, {"0x2", "1-b1"}}, rang); d != "" {
		t.Error(d)
	}
}
