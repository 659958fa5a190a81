package rows_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/rows"
)

func each(t *testing.T, kind rows.Kind, text string) string {
	t.Helper()
	var got []string
	if err := rows.Each(strings.NewReader(text), kind, func(row map[string]any) { got = append(got, fmt.Sprint(row)) }); err != nil {
		t.Error(err)
	}
	return strings.Join(got, " ")
}

func TestRowsThatCannotBeReadAreLeftOut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*rows.MaxLine)
	for name, test := range map[string]struct {
		kind       rows.Kind
		text, want string
	}{
		"JSON lines":         {rows.JSON, "{\"a\": 1}\n\n[1]\n{\"a\": NaN}\r\n{\"a\":\n{\"b\": {\"c\": 2}}", "map[a:1] map[a:NaN] map[b:map[c:2]]"},
		"a line too long":    {rows.JSON, "{\"a\": 1}\n{\"a\": \"" + long + "\"}\n{\"a\": 2}\n", "map[a:1] map[a:2]"},
		"only a long line":   {rows.JSON, long, ""},
		"binary":             {rows.JSON, "{\"a\": \"\xff\"}\n", ""},
		"deep":               {rows.JSON, strings.Repeat(`{"a":`, 11_000) + "1" + strings.Repeat("}", 11_000), ""},
		"a table":            {rows.CSV, "\ufeffstep,loss\n1,2\n3\n\"4\",\"5\"\n", "map[loss:2 step:1] map[loss:5 step:4]"},
		"a table's head":     {rows.CSV, "step,loss\n", ""},
		"a long head":        {rows.CSV, long + "\n1,2\n", ""},
		"nothing":            {rows.CSV, "", ""},
		"a quote that stays": {rows.CSV, "a,b\n\"1,2\n3,4\n", "map[a:3 b:4]"},
	} {
		if got := each(t, test.kind, test.text); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// A file that grows is read in parts, each row once, and no row before its line has ended.
func TestGrowingFileIsReadInParts(t *testing.T) {
	t.Parallel()
	const text = "step,loss\n1,2\n\n" + "x\n3,4\n5,6"
	for _, ends := range [][]int{{len(text)}, {3, 12, 13, 14, 20, len(text)}, {15, 19, len(text)}} {
		r := rows.Reader{Kind: rows.CSV}
		var got []string
		from := int64(0)
		for i, end := range ends {
			whole, err := r.Read(strings.NewReader(text[from:end]), i == len(ends)-1, func(row map[string]any) { got = append(got, fmt.Sprint(row)) })
			if err != nil {
				t.Fatal(err)
			}
			from += whole
		}
		if want := "map[loss:2 step:1] map[loss:4 step:3] map[loss:6 step:5]"; strings.Join(got, " ") != want || r.Skipped != 1 || from != int64(len(text)) {
			t.Errorf("parts to %v: %s, %d lines skipped, %d bytes", ends, got, r.Skipped, from)
		}
	}
	long := rows.Reader{Kind: rows.JSON}
	whole, err := long.Read(strings.NewReader(strings.Repeat("x", 3*rows.MaxLine)+"\n{\"a\": 1}\n{\"a\""), false, func(map[string]any) {})
	if err != nil || long.Skipped != 1 || whole != 3*rows.MaxLine+1+9 {
		t.Errorf("%v: %d lines skipped, %d bytes", err, long.Skipped, whole)
	}
}

func TestValueOfARow(t *testing.T) {
	t.Parallel()
	row := map[string]any{"a": map[string]any{"b": 1, "c/d": 4}, "c": 2, "train/loss": 3, "a/b/x": 5}
	for at, want := range map[string]string{"c": "2", "a/b": "1", "a/x": "<nil>", "c/x": "<nil>", "": "<nil>", "train/loss": "3", "a/c/d": "4", "a/b/x": "5", "train": "<nil>"} {
		if got := fmt.Sprint(rows.Value(row, at)); got != want {
			t.Errorf("%q is %s, want %s", at, got, want)
		}
	}
}

func FuzzEach(f *testing.F) {
	f.Add("a,b\n1,2\n")
	f.Add("{\"a\": NaN}\n")
	f.Fuzz(func(t *testing.T, text string) {
		_ = each(t, rows.CSV, text)
		_ = each(t, rows.JSON, text)
		_ = rows.Last(rows.CSV, text, text, int64(len(text)))
		_ = rows.Last(rows.JSON, text, text, int64(len(text)))
	})
}
