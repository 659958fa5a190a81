// Package shellrc keeps a block of lines of one program in a shell's configuration file, between two marks: whatever else the
// file has stays as it is.
package shellrc

import "strings"

// Block is the lines of a program.
type Block struct {
	// Name identifies the block, and Undo tells a reader of the file how to remove it. Both are one line.
	Name, Undo string
	// Lines end with a line feed each.
	Lines string
}

func (b Block) begin() string { return "# >>> " + b.Name + " >>>" }
func (b Block) end() string   { return "# <<< " + b.Name + " <<<" }

func (b Block) text() string {
	return b.begin() + "\n# " + b.Undo + "\n" + b.Lines + b.end() + "\n"
}

// In returns a file's text with the block at its end, or in the place of an older one. It is the same text if it has the block
// already.
func (b Block) In(text string) string {
	if before, after, ok := b.cut(text); ok {
		return before + b.text() + after
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + b.text()
}

// Without returns a file's text without the block, and whether it had one.
func (b Block) Without(text string) (rest string, had bool) {
	before, after, ok := b.cut(text)
	if !ok {
		return text, false
	}
	return before + after, true
}

// Has reports whether a file's text has the block, or an older one.
func (b Block) Has(text string) bool {
	_, _, ok := b.cut(text)
	return ok
}

// cut finds the block, which ends with its line. A mark without the other one is no block: nothing between it and the end of
// the file may be lost.
func (b Block) cut(text string) (before, after string, ok bool) {
	from := lineIndex(text, b.begin(), 0)
	if from < 0 {
		return "", "", false
	}
	to := lineIndex(text, b.end(), from)
	if to < 0 {
		return "", "", false
	}
	for next := from; next >= 0 && next < to; next = lineIndex(text, b.begin(), from+1) {
		from = next
	}
	_, after, _ = strings.Cut(text[to:], "\n")
	return text[:from], after, true
}

// lineIndex returns the index of a whole line at or behind an index, -1 if it is not there.
func lineIndex(text, line string, from int) int {
	for at := from; at < len(text); {
		end := strings.IndexByte(text[at:], '\n')
		if end < 0 {
			end = len(text) - at
		}
		if strings.TrimSuffix(text[at:at+end], "\r") == line {
			return at
		}
		at += end + 1
	}
	return -1
}
