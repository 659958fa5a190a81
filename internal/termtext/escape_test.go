package termtext_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

func TestNothingSteersTheTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, escaped, oneLine string }{
		{"plain", "naïve – 猫 🐈 שלום", "naïve – 猫 🐈 שלום", "naïve – 猫 🐈 שלום"},
		{"empty", "", "", ""},
		{"lines and tabs", "a\nb\tc\n", "a\nb\tc\n", "a b c "},
		{"colour", "\x1b[31mred\x1b[0m", `\u001b[31mred\u001b[0m`, `\u001b[31mred\u001b[0m`},
		{"title", "\x1b]0;x\a", `\u001b]0;x\u0007`, `\u001b]0;x\u0007`},
		{"overwrites", "shown\rhidden\b\b", `shown\u000dhidden\u0008\u0008`, `shown hidden\u0008\u0008`},
		{"pages", "a\v\fb", `a\u000b\u000cb`, "a  b"},
		{"zero", "a\x00b", `a\u0000b`, `a\u0000b`},
		{"delete", "a\x7fb", `a\u007fb`, `a\u007fb`},
		{"C1", "a\u009b2J\u0085", `a\u009b2J\u0085`, `a\u009b2J `},
		{"C1 as a byte", "a\x9b2J", "a\ufffd2J", "a\ufffd2J"},
		{"no UTF-8", "a\xff\xc3b", "a\ufffd\ufffdb", "a\ufffd\ufffdb"},
		{"overrides", "a\u202etxt.exe\u202c", `a\u202etxt.exe\u202c`, `a\u202etxt.exe\u202c`},
		{"embeddings", "\u202a\u202b\u202d", `\u202a\u202b\u202d`, `\u202a\u202b\u202d`},
		{"isolates", "\u2066\u2067\u2068\u2069", `\u2066\u2067\u2068\u2069`, `\u2066\u2067\u2068\u2069`},
		{"marks", "\u200e\u200f\u061c", `\u200e\u200f\u061c`, `\u200e\u200f\u061c`},
		{"separators", "a\u2028b\u2029", `a\u2028b\u2029`, "a b "},
		{"other spaces", "a\u00a0b\u3000c", "a\u00a0b\u3000c", "a b c"},
	} {
		if got := termtext.Escape(tt.text); got != tt.escaped {
			t.Errorf("%s: Escape(%q) is %q, want %q", tt.name, tt.text, got, tt.escaped)
		}
		if got := termtext.OneLine(tt.text); got != tt.oneLine {
			t.Errorf("%s: OneLine(%q) is %q, want %q", tt.name, tt.text, got, tt.oneLine)
		}
		for _, size := range []int{1, 2, 3, 5, 1000} {
			var out bytes.Buffer
			w := termtext.NewWriter(&out)
			for text := []byte(tt.text); len(text) > 0; text = text[min(size, len(text)):] {
				if n, err := w.Write(text[:min(size, len(text))]); err != nil || n != min(size, len(text)) {
					t.Fatalf("Write: %d, %v", n, err)
				}
			}
			if got := out.String(); got != tt.escaped {
				t.Errorf("%s: in pieces of %d bytes %q became %q, want %q", tt.name, size, tt.text, got, tt.escaped)
			}
		}
	}
}

// Nothing but the form of JSON changes.
func TestEscapedJSONMeansTheSame(t *testing.T) {
	t.Parallel()
	want := "\x1b[2J \u009b \x7f \u202e \u2028 \n\t\r naïve \\u001b"
	data, err := json.MarshalIndent(map[string]string{want: want}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := termtext.NewWriter(&out).Write(data); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[want] != want {
		t.Errorf("%s is read as %q, %v", out.String(), got, err)
	}
	if escaped := termtext.Escape(out.String()); escaped != out.String() {
		t.Errorf("%q steers the terminal", out.String())
	}
}

// A progress bar overwrites its line, and so could a text that hides the beginning of a line.
func TestCarriageReturnsEndLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10%\r20%\rdone\n": "10%\n20%\ndone\n", "dos\r\nlines\r\n": "dos\nlines\n", "\r": "\n", "\r\r\n\n": "\n\n\n", "": "", "a\x1bb\r": "a\\u001bb\n",
	} {
		for _, size := range []int{1, 2, 3, 1000} {
			var out bytes.Buffer
			w := &termtext.Lines{To: termtext.NewWriter(&out)}
			for left := []byte(text); len(left) > 0; left = left[min(size, len(left)):] {
				if n, err := w.Write(left[:min(size, len(left))]); err != nil || n != min(size, len(left)) {
					t.Fatalf("Write: %d, %v", n, err)
				}
			}
			if got := out.String(); got != want {
				t.Errorf("in pieces of %d bytes %q became %q, want %q", size, text, got, want)
			}
		}
	}
}

func TestContentsPassAsTheyAre(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if termtext.Raw(termtext.NewWriter(&out)) != &out || termtext.Raw(&out) != &out {
		t.Error("Raw is not the stream itself")
	}
}

func TestRowOfATableIsOneLine(t *testing.T) {
	t.Parallel()
	got := termtext.Table([][]string{{"name", "state"}, {"a\n0x1\tready\x1b[2J", "failed"}})
	want := "name                  state\na 0x1 ready\\u001b[2J  failed\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
