package logcurves_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/rows"
	"github.com/cl-slurm/cl-slurm/server/logcurves"
)

func read(t *testing.T, name, text string) logcurves.Curves {
	t.Helper()
	l := logcurves.New(name)
	if err := l.Read(strings.NewReader(text), true); err != nil {
		t.Error(err)
	}
	return l.Curves()
}

func TestCurvesOfALog(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("c,", rows.MaxLine) + "c\n"
	for name, test := range map[string]struct{ file, text, want string }{
		"rows":                     {"a.jsonl", "{\"loss\": 3}\n{\"loss\": 1}\n{\"loss\": 2}\n", "row: loss 3 1..3 2 [1 2 3]"},
		"steps":                    {"a.jsonl", "{\"epoch\": 0, \"step\": 10, \"loss\": 3}\n{\"step\": 20, \"epoch\": 1, \"loss\": 1}\n{\"eval\": 7}\n", "step: epoch 0 0..1 1 [10 20] loss 3 1..3 1 [10 20]"},
		"dictionaries":             {"a.ndjson", "{\"train\": {\"loss\": 1}, \"name\": \"x\"}\n{\"train\": {\"loss\": 2}}\n", "row: train/loss 1 1..2 2 [1 2]"},
		"a gap":                    {"a.jsonl", "{\"loss\": 3}\n{\"loss\": NaN}\n{\"loss\": 2}\n", "row: loss 3 2..3 2 [1 2 3]"},
		"a table of a log":         {"a.csv", "Epoch,loss,note\n1,3,a\n2,,b\n3,1,c\n", "Epoch: loss 3 1..3 1 [1 3]"},
		"a table of other numbers": {"a.csv", "length,width\n1,3\n2,4\n", ""},
		"one number":               {"a.jsonl", "{\"loss\": 3}\n{\"x\": \"a\"}\n", "row:"},
		"a million columns":        {"a.csv", wide + wide + wide, ""},
		"deep":                     {"a.jsonl", strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000) + "\n", ""},
	} {
		got := read(t, test.file, test.text)
		var out []string
		if got.X != "" {
			out = append(out, got.X+":")
		}
		for _, c := range got.Curves {
			out = append(out, fmt.Sprintf("%s %v %v..%v %v %v", c.Name, c.First, c.Lowest, c.Highest, c.Last, c.X))
		}
		if text := strings.Join(out, " "); text != test.want {
			t.Errorf("%s: %q instead of %q", name, text, test.want)
		}
	}
}

// A log keeps few curves and few points, of however many.
func TestCurvesAreBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "{\"loss\": %d, \"key%d\": 1, \"other%d\": 2}\n", i, i%100, i)
	}
	got := read(t, "a.jsonl", text.String())
	if len(got.Curves) > 24 || got.Left != 1000 {
		t.Errorf("%d curves, and %d are left", len(got.Curves), got.Left)
	}
	for _, c := range got.Curves {
		if c.Name == "loss" && (c.Numbers != 20_000 || c.Highest != 19_999 || c.X[len(c.X)-1] != 20_000) {
			t.Errorf("loss has %d numbers up to %v", c.Numbers, c.Highest)
		}
		if len(c.X) > 1100 || len(c.X) != len(c.Y) {
			t.Errorf("%s has %d and %d points", c.Name, len(c.X), len(c.Y))
		}
	}
}

// A log that grows is read in parts.
func TestLogGrows(t *testing.T) {
	t.Parallel()
	l := logcurves.New("a.jsonl")
	const text = "{\"a\": 1}\n{\"a\": 2}\n{\"a\""
	if err := l.Read(strings.NewReader(text), false); err != nil || l.Offset() != 18 {
		t.Errorf("%v, %d bytes", err, l.Offset())
	}
	if err := l.Read(strings.NewReader("{\"a\": 3}"), true); err != nil || l.Curves().Curves[0].Last != 3 {
		t.Errorf("%v, %v", err, l.Curves())
	}
}

func FuzzLog(f *testing.F) {
	f.Add("step,a\n1,2\n2,3\n")
	f.Add("{\"a\": {\"b\": 1}}\n{\"a\": {\"b\": 2}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		_ = read(t, "a.csv", text)
		_ = read(t, "a.jsonl", text)
	})
}

func BenchmarkRead(b *testing.B) {
	text := strings.Repeat("{\"step\": 1, \"loss\": 0.123456, \"accuracy\": 0.99, \"lr\": 1e-4, \"time\": 12345.678}\n", 100_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		l := logcurves.New("a.jsonl")
		_ = l.Read(strings.NewReader(text), true)
		_ = l.Curves()
	}
}
