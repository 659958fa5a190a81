package interpret

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// People see the last state of a progress bar. For values each state stays a line, as in CodaLab.
func TestShownLinesFoldProgressBars(t *testing.T) {
	t.Parallel()
	bar := "0 %\r 50 %\r100 %"
	for name, test := range map[string]struct {
		text         string
		limit        int
		shown, lines []string
	}{
		"bar":                 {"a\n" + bar + "\nb\n", 99, []string{"a\n", "100 %\n", "b\n"}, []string{"a\n", "0 %\n", " 50 %\n"}},
		"bar at the end":      {"a\n" + bar, 99, []string{"a\n", "100 %\n"}, []string{"a\n", "0 %\n", " 50 %\n"}},
		"bar that goes on":    {"a\n" + bar + "\r" + bar, 12, []string{"a\n", " 50 %\n"}, []string{"a\n", "0 %\n", " 50 %\n"}},
		"bar in colours":      {"\x1b[31m0 %\r\x1b[32m9 %\n\x1b[31mred\n", 99, []string{"9 %\n", "\x1b[31mred\n"}, []string{"\x1b[31m0 %\n", "\x1b[32m9 %\n", "\x1b[31mred\n"}},
		"lines of Windows":    {"a\r\nb\r\n", 99, []string{"a\n", "b\n"}, []string{"a\n", "b\n"}},
		"a line that goes on": {"a\nbcd", 4, []string{"a\n"}, []string{"a\n"}},
		"many lines":          {"1\n2\n3\n4\r5\n", 99, []string{"1\n", "2\n", "3\n"}, []string{"1\n", "2\n", "3\n"}},
		"other ends of lines": {"a\x0bb\u2028c", 99, []string{"a\x0b", "b\u2028", "c\n"}, []string{"a\x0b", "b\u2028", "c\n"}},
		"no text":             {"\xff\r", 99, []string{"<binary>"}, []string{"<binary>"}},
		"nothing":             {"", 99, nil, nil},
	} {
		if diff := cmp.Diff(test.shown, shownLines([]byte(test.text), test.limit, 3)); diff != "" {
			t.Errorf("%s is shown so (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.lines, headLines([]byte(test.text), test.limit, 3)); diff != "" {
			t.Errorf("%s has the lines (-want +got):\n%s", name, diff)
		}
	}
	if got := shownLines([]byte(strings.Repeat(bar+"\r", 100_000)), 1024, 1); len(got) != 1 || len(got[0]) > 7 {
		t.Errorf("a long bar is shown as %q", got)
	}
}
