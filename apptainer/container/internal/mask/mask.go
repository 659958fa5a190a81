// Package mask replaces values in a stream of text, such as the secrets of a command in its output.
//
// A value may come in any number of pieces. So a Mask keeps back text that may be the begin of a value until it has seen
// enough of the rest: less than the longest value.
package mask

import (
	"bytes"
	"cmp"
	"slices"
)

// Replacement stands in the place of a value.
const Replacement = "***"

// Mask replaces values in one stream. A nil Mask changes nothing.
type Mask struct {
	// values has the values by their first byte, longer ones first.
	values [256][][]byte
	held   []byte // text that may be the begin of a value
	out    []byte
}

// New returns a Mask for these values; nil if there are none.
func New(values []string) *Mask {
	m := &Mask{}
	for _, v := range values {
		if v != "" {
			m.values[v[0]] = append(m.values[v[0]], []byte(v))
		}
	}
	if !slices.ContainsFunc(values, func(v string) bool { return v != "" }) {
		return nil
	}
	for _, list := range m.values {
		slices.SortFunc(list, func(a, b []byte) int { return cmp.Compare(len(b), len(a)) })
	}
	return m
}

// Next takes the next text of the stream, and returns what is to be written of it and of earlier text. The result is
// valid until the next call.
func (m *Mask) Next(text []byte) []byte {
	if m == nil {
		return text
	}
	return m.replace(text, false)
}

// Rest returns the text that was kept back, at the end of the stream.
func (m *Mask) Rest() []byte {
	if m == nil {
		return nil
	}
	return m.replace(nil, true)
}

// replace replaces the values in the held text and the next. At each place the longest value counts. Unless this is the
// end, it holds the text from the first place on where a longer value may still begin.
func (m *Mask) replace(text []byte, end bool) []byte {
	if len(m.held) > 0 {
		text = append(m.held, text...)
	}
	m.out = m.out[:0]
	at := 0
	for at < len(text) {
		matched, open := m.match(text[at:], end)
		switch {
		case open:
			m.held = append(m.held[:0], text[at:]...)
			return m.out
		case matched > 0:
			m.out = append(m.out, Replacement...)
			at += matched
		default:
			m.out = append(m.out, text[at])
			at++
		}
	}
	m.held = m.held[:0]
	return m.out
}

// match returns the length of the longest value with which the text begins; 0 if there is none. open is set if more text
// may make a longer value of it.
func (m *Mask) match(text []byte, end bool) (length int, open bool) {
	for _, v := range m.values[text[0]] {
		switch {
		case bytes.HasPrefix(text, v):
			return len(v), false
		case !end && bytes.HasPrefix(v, text):
			return 0, true
		}
	}
	return 0, false
}
