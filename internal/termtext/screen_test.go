package termtext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

func TestScreenShowsTheLastState(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "",
		"a\n\tb":                                 "a\n\tb",
		"\x1b[1;32mgreen\x1b[0m é\n":             "green é\n",
		"\u009b31mred":                           "red",
		"a\r\nb\r\n":                             "a\nb\n",
		" 10%\r 50%\r100%\ndone\n":               "100%\ndone\n",
		"long line\rab":                          "abng line",
		"long line\r\x1b[Kab":                    "ab",
		"long line\x1b[2K\rab":                   "ab",
		"10%\b\b\b20%":                           "20%",
		"\b\ba":                                  "a",
		"\x1b]0;title\aa\x1b]8;;http://x\x1b\\b": "ab",
		"a\x1b]0;no end\nb":                      "a\nb",
		"a\x1b[1":                                "a",
		"a\x1b[1é":                               "aé",
		"a\x1b(Bb\x1b=c\x1b":                     "abc",
		"a\x00\ab\x7f":                           "ab",
		"é\x1b\x1b[Ab":                           "éb",
	} {
		if got := termtext.Screen(text); got != want {
			t.Errorf("%q shows %q instead of %q", text, got, want)
		}
	}
}

// The time and the memory grow with the text, whatever is in it.
func TestScreenIsBounded(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b[2K", "\x1b[999999999C", "a\r", "\r", "\b", "a\x1b[K", "\u009b", "\x1b("} {
		text := "a" + strings.Repeat(unit, 1<<20/len(unit))
		if got := termtext.Screen(text); len(got) > len(text) {
			t.Errorf("%q: %d bytes", unit, len(got))
		}
	}
}

func FuzzScreen(f *testing.F) {
	f.Add("\x1b[1;32mgreen\x1b[0m 10%\r20%\b1\x1b]0;a\aé")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		got := termtext.Screen(text)
		again := termtext.Screen(got)
		if len(got) > len(text) || again != got || !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\r\b") {
			t.Errorf("%q shows %q, and that %q", text, got, again)
		}
		if strings.Count(got, "\n") != strings.Count(text, "\n") {
			t.Errorf("%q shows %q", text, got)
		}
	})
}
