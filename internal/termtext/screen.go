package termtext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Screen returns the lines that a terminal shows after a program's output: without colours, and of a progress bar its last
// state. It is for contents of files on a page. What moves the cursor to other lines has no effect. The result has at most as
// many bytes as the text.
func Screen(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }) < 0 {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		content, end := strings.CutSuffix(line, "\n")
		out.WriteString(screenLine(content))
		if end {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// screenLine returns a line as it is in the end.
func screenLine(line string) string {
	var shown []rune
	at := 0 // the cursor's place
	for line != "" {
		r, n := utf8.DecodeRuneInString(line)
		switch {
		case r == '\r':
			at = 0
		case r == '\b':
			at = max(0, at-1)
		case r == '\x1b' || r == '\u009b' || r == '\u009d':
			n = sequence(line)
			switch strings.TrimPrefix(line[:n], "\x1b") {
			case "[K", "[0K": // erase to the end of the line
				shown = shown[:at]
			case "[2K": // erase the line. What comes next is at its beginning, as programs write it
				shown, at = shown[:0], 0
			}
		case r != '\t' && unicode.IsControl(r):
		case at < len(shown):
			shown[at] = r
			at++
		default:
			shown = append(shown, r)
			at++
		}
		line = line[n:]
	}
	return string(shown)
}

// sequence returns the number of bytes of the escape sequence with which a line begins (ECMA-48, 5.3 to 5.6). One without an end
// has all of the line.
func sequence(line string) int {
	kind, n := byte('['), 2
	switch {
	case strings.HasPrefix(line, "\u009d"):
		kind = ']'
	case line == "\x1b":
		return 1
	case line[0] == '\x1b':
		kind = line[1]
	}
	switch {
	case kind == '[': // parameters, and a final byte
		for i := n; i < len(line); i++ {
			switch c := line[i]; {
			case c >= 0x40 && c <= 0x7e:
				return i + 1
			case c < 0x20 || c > 0x7e: // no sequence
				return i
			}
		}
		return len(line)
	case strings.IndexByte("]PX^_", kind) >= 0: // a text for the terminal, up to a bell or ESC \
		for i := n; i < len(line); i++ {
			if line[i] == '\a' {
				return i + 1
			}
			if line[i] == '\x1b' {
				return min(i+2, len(line))
			}
		}
		return len(line)
	case kind >= 0x20 && kind <= 0x2f: // as the choice of characters
		for i := n; i < len(line); i++ {
			if line[i] < 0x20 || line[i] > 0x2f {
				_, size := utf8.DecodeRuneInString(line[i:])
				return i + size
			}
		}
		return len(line)
	case kind < 0x20 || kind > 0x7e:
		return 1
	}
	return n
}
