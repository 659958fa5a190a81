package termtext

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// steersTerminal reports whether a terminal acts on a character instead of showing it:
//
//   - a control character (C0, DEL or C1): these begin a terminal's commands, and a carriage return
//     lets the rest of a line hide its beginning;
//   - a mark that turns the direction of writing;
//   - an end of a line other than the newline.
//
// The newline and the tab have no effect outside of the text itself.
func steersTerminal(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// isPlain reports whether a text has printable characters of ASCII only, as nearly all have.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Escape makes characters that steer a terminal visible, as \u001b. In JSON the result means the same
// character. Bytes that are no UTF-8 become U+FFFD. Newlines and tabs stay.
func Escape(s string) string {
	if isPlain(s) {
		return s
	}
	if utf8.ValidString(s) && strings.IndexFunc(s, steersTerminal) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if steersTerminal(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// OneLine is Escape for a text that must stay on its line and in its column: white space of any kind
// becomes a space.
func OneLine(s string) string {
	if isPlain(s) {
		return s
	}
	return Escape(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, s))
}

// Writer escapes text on its way to another writer. Programs print through it, so that no foreign text
// steers a terminal. Several goroutines may use it.
type Writer struct {
	raw io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character
}

// NewWriter returns a Writer to raw.
func NewWriter(raw io.Writer) *Writer { return &Writer{raw: raw} }

// Write escapes text. If it ends within a character, the next Write completes it.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append(w.rest, text...)
	whole := len(all) - BegunRune(all)
	w.rest = append([]byte(nil), all[whole:]...)
	if _, err := io.WriteString(w.raw, Escape(string(all[:whole]))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// BegunRune returns the number of bytes of an incomplete character at the end of a text.
func BegunRune(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if end := text[len(text)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRune(end) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Lines is for contents of files on a terminal. It passes text on to another writer, with a newline for each end of a
// line: a carriage return, which moves the cursor back, would let the rest of a line hide its beginning. So a program's
// progress bar becomes lines. Lines is for one goroutine.
type Lines struct {
	// To receives the text, usually a Writer.
	To io.Writer

	returned bool // the last character was a carriage return
}

// Write passes text on.
func (l *Lines) Write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	lines := text
	if l.returned {
		lines = bytes.TrimPrefix(lines, []byte("\n"))
	}
	l.returned = text[len(text)-1] == '\r'
	lines = bytes.ReplaceAll(lines, []byte("\r\n"), []byte("\n"))
	if _, err := l.To.Write(bytes.ReplaceAll(lines, []byte("\r"), []byte("\n"))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Raw returns the stream behind a Writer, and any other writer itself: for contents of files that go
// to no terminal, and for programs that draw on one.
func Raw(w io.Writer) io.Writer {
	if escaping, ok := w.(*Writer); ok {
		return escaping.raw
	}
	return w
}
