package cachetest

import (
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
		}, want: "key 1: two fills were both published at once: a at 3ns as process 0 says (get), and still at 7ns as process 0 says (get); b at 4ns"},
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

func TestSummaryCountsWhatWasDone(t *testing.T) {
	t.Parallel()
	sum, wrong := judge([]record{
		{Did: didFill, Process: 1, Key: 1, Fill: "p1.1", End: 1},
		{Did: didFill, Process: 2, Key: 1, Fill: "p2.1", End: 2}, // the first was killed
		{Did: didFilled, Process: 2, Key: 1, Fill: "p2.1", End: 3, Bytes: 5},
		{Did: didGet, Process: 2, Key: 1, Fill: "p2.1", End: 4, Own: true},
		{Did: didGet, Process: 3, Key: 1, Fill: "p2.1", Begin: 1, End: 5, Waited: true},
		{Did: didGet, Process: 3, Key: 2, Err: "full", End: 6},
		{Did: didRead, Process: 3, Key: 1, Fill: "p2.1", Bytes: 100, End: 7},
		{Did: didTrim, N: 3, End: 8},
		{Did: didStop, End: 9},
	}, 0)
	if len(wrong) > 0 {
		t.Error(wrong)
	}
	sum.Processes = 3
	const want = "3 processes, 0 killed, 1 stopped; 2 fills: 1 published, 0 failed, 0 dropped, 1 take-overs, 0.0 MiB resumed; " +
		"1 hits, 1 waits; 1 reads, 0.0 MiB verified, 0 outlived; 1 trims, 3 removed; at most 0.0 of 0.0 MiB in 0 audits; errors: full 1"
	if got := sum.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestContentIsToldFromWhatItIsNot(t *testing.T) {
	t.Parallel()
	for _, c := range contents(1, 3) {
		path := t.TempDir() + "/content"
		if _, err := c.make(path, "p1.1", func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		fill, n, err := c.check(path, func() {})
		if err != nil || fill != "p1.1" || n < c.size-int64(len(c.files())) || n > c.size {
			t.Errorf("it is of %s, %d of %d bytes, %v", fill, n, c.size, err)
		}
		if by, err := c.madeBy(path); err != nil || by != "p1.1" {
			t.Errorf("it is of %s, %v", by, err)
		}
		other := c
		other.n++
		if _, _, err := other.check(path, func() {}); err == nil {
			t.Error("it passes for another")
		}
		found, err := c.make(path, "p2.1", func() error { return nil })
		if err != nil || found != c.body()*int64(len(c.files())) {
			t.Errorf("a fill that goes on found %d bytes, %v", found, err)
		}
		last := path + "/" + c.files()[len(c.files())-1]
		if !c.dir {
			last = path
		}
		if err := flip(last); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.check(path, func() {}); kind(err) != "wrong" {
			t.Errorf("a changed byte: %v", err)
		}
	}
}
