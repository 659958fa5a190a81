package termtext_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// steers reports whether a text has a character that no text for a terminal may have.
func steers(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
	})
}

// No text of others steers a terminal, in whatever parts a program prints it.
func FuzzEscape(f *testing.F) {
	f.Add("plain\ttext\n", uint8(3))
	f.Add("\x1b]0;title\x07\x9b31m", uint8(1))
	f.Add("\u202eright to left\u2069\u2028", uint8(2))
	f.Add("\xff\xf0\x9f", uint8(1))
	f.Fuzz(func(t *testing.T, text string, at uint8) {
		escaped := termtext.Escape(text)
		if steers(escaped) || termtext.Escape(escaped) != escaped {
			t.Errorf("%q is escaped as %q", text, escaped)
		}
		if line := termtext.OneLine(text); steers(line) || strings.ContainsAny(line, "\n\t") {
			t.Errorf("%q is the line %q", text, line)
		}
		var out bytes.Buffer
		w := termtext.NewWriter(&out)
		n := min(int(at), len(text))
		for _, part := range []string{text[:n], text[n:]} {
			if _, err := w.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if steers(out.String()) {
			t.Errorf("%q is printed as %q", text, &out)
		}
	})
}
