package logcurves

import (
	"strings"
	"testing"
)

// The key over which curves are drawn is that of the first row with numbers, and long keys have no curves.
func TestFirstNumbersTellTheStep(t *testing.T) {
	t.Parallel()
	l := New("a.jsonl")
	long := strings.Repeat("k", longestKey)
	text := `{"config":"x"}` + "\n" + `{"step":10,"loss":1,"` + long + `":{"a":1}}` + "\n" + `{"step":20,"loss":2}` + "\n"
	if err := l.Read(strings.NewReader(text), true); err != nil {
		t.Fatal(err)
	}
	if l.x != "step" || len(l.order) != 1 || l.order[0] != "loss" {
		t.Errorf("curves %.20q over %q", l.order, l.x)
	}
}
