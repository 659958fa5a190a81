package cachetest

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// get is a Get that returned a fill's content.
func get(key int, fill string, begin, end time.Duration) record {
	return record{Did: didGet, Key: key, Fill: fill, Begin: begin, End: end}
}

func filled(key int, fill string, end time.Duration) record {
	return record{Did: didFilled, Key: key, Fill: fill, End: end}
}

func TestTwoContentsOfAKeyAreToldFromOneAfterTheOther(t *testing.T) {
	t.Parallel()
	own := func(r record) record { r.Own = true; return r }
	for name, test := range map[string]struct {
		records []record
		settle  time.Duration
		want    string
	}{
		"one after the other": {records: []record{
			filled(1, "a", 1), own(get(1, "a", 0, 3)), get(1, "a", 4, 6),
			filled(1, "b", 8), own(get(1, "b", 7, 9)), get(1, "b", 10, 11),
		}},
		"the calls overlap, and the contents need not": {records: []record{
			filled(1, "a", 1), get(1, "a", 0, 9), filled(1, "b", 2), get(1, "b", 0, 10),
		}},
		"both at once": {records: []record{
			filled(1, "a", 1), get(1, "a", 0, 3), filled(1, "b", 2), get(1, "b", 1, 4), get(1, "a", 7, 8), get(1, "b", 7, 9),
		}, want: "key 1: two fills were both published at once: a at 3ns, and still at 7ns; b at 4ns"},
		"back to the first": {records: []record{
			filled(1, "a", 1), get(1, "a", 0, 3), filled(1, "b", 4), get(1, "b", 5, 6), get(1, "a", 7, 8),
		}, want: "both published at once"},
		"back to the first, within what a host may see of the past": {records: []record{
			filled(1, "a", 1), get(1, "a", 0, 3), filled(1, "b", 4), get(1, "b", 5, 6), get(1, "a", 7, 8),
		}, settle: 5},
		"published by its own fill while another was": {records: []record{
			filled(1, "a", 1), get(1, "a", 0, 2), filled(1, "b", 5), own(get(1, "b", 0, 6)), get(1, "a", 7, 8),
		}, settle: 0, want: "both published at once"},
		"replaced while it was pinned": {records: []record{
			filled(1, "a", 1), get(1, "a", 0, 2), filled(1, "b", 3), get(1, "b", 4, 5), {Did: didUnpin, Key: 1, Fill: "a", End: 7},
		}},
		"of different keys": {records: []record{
			filled(1, "a", 1), get(1, "a", 0, 3), filled(2, "b", 2), get(2, "b", 3, 4), get(1, "a", 5, 6), get(2, "b", 5, 6),
		}},
		"another key's": {records: []record{
			filled(1, "a", 1), get(2, "a", 0, 3),
		}, want: "key 2 has the content of fill a, which is of key 1"},
		"of a fill that failed": {records: []record{
			{Did: didFill, Key: 1, Fill: "a", End: 1}, {Did: didFail, Key: 1, Fill: "a", End: 2}, get(1, "a", 0, 3),
		}, want: "which has not ended well"},
		"seen by a process": {records: []record{
			{Did: didRead, Process: 7, Wrong: "it is blue", End: 1},
		}, want: "process 7: it is blue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, wrong := judge(test.records, test.settle)
			all := strings.Join(wrong, "\n")
			if test.want == "" && all != "" || !strings.Contains(all, test.want) {
				t.Errorf("it says %q, want %q", all, test.want)
			}
		})
	}
}

func TestCountsTellWhatWasDone(t *testing.T) {
	t.Parallel()
	sum, wrong := judge([]record{
		{Did: didFill, Key: 1, Fill: "p1.1", End: 1},
		{Did: didFill, Key: 1, Fill: "p2.1", End: 2}, // the first was killed
		{Did: didFilled, Key: 1, Fill: "p2.1", End: 3, Bytes: 5},
		{Did: didGet, Key: 1, Fill: "p2.1", End: 4, Own: true},
		{Did: didGet, Key: 1, Fill: "p2.1", Begin: 1, End: 5},
		{Did: didGet, Key: 2, Err: "full", End: 6},
		{Did: didRead, Key: 1, Fill: "p2.1", Bytes: 100, End: 7},
		{Did: didTrim, N: 3, End: 8},
	}, 0)
	want := counts{
		"fills": 2, "take-overs": 1, "published": 1, "resumed bytes": 5, "own": 1, "hits": 1, "error full": 1, "reads": 1, "read bytes": 100, "trims": 1, "removed": 3,
	}
	if len(wrong) > 0 || !maps.Equal(sum, want) {
		t.Errorf("%v, %v; want %v", sum, wrong, want)
	}
}

func TestContentIsToldFromWhatItIsNot(t *testing.T) {
	t.Parallel()
	for _, c := range contents(1, 3) {
		path := t.TempDir() + "/content"
		fillBy := func(fill string) int64 {
			t.Helper()
			found, err := c.make(path, fill, func() error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		fillBy("p1.1")
		if fill, n, err := c.check(path); err != nil || fill != "p1.1" || n < c.size-int64(len(c.files())) || n > c.size {
			t.Errorf("it is of %s, %d of %d bytes, %v", fill, n, c.size, err)
		}
		if by, err := c.madeBy(path); err != nil || by != "p1.1" {
			t.Errorf("it is of %s, %v", by, err)
		}
		other := c
		other.n++
		if _, _, err := other.check(path); err == nil {
			t.Error("it passes for another")
		}
		found := fillBy("p2.1")
		if want := c.size - int64(len(c.files()))*2*chunkLen; found < want || found > c.size {
			t.Errorf("a fill that goes on found %d bytes, want %d", found, want)
		}
		last := filepath.Join(path, c.files()[len(c.files())-1])
		text := c.text(c.files()[len(c.files())-1], "p2.1")
		text[2*stampLen] ^= 1
		if err := os.WriteFile(last, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.check(path); !errors.Is(err, errWrong) {
			t.Errorf("a changed byte: %v", err)
		}
	}
}
