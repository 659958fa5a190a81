// Package sentence makes a line for a person from an error's text.
package sentence

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Of puts text on one line, with a capital at its beginning and a full stop at its end. An
// empty text stays empty.
func Of(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
