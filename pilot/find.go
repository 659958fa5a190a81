package pilot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrAmbiguous means that a text names several pilots.
var ErrAmbiguous = errors.New("it names several workers")

// ErrNotFound means that a text names no pilot.
var ErrNotFound = errors.New("there is no such worker")

// leastPart is the least number of hexadecimal digits that can name a pilot.
const leastPart = 4

// Named returns the pilots among these that a text names: by the pilot's name or worker id, by its job, by the
// beginning of its hexadecimal digits, or by a bundle's remote, which ends in a worker id.
func Named(pilots []Pilot, text string) []Pilot {
	var whole, part []Pilot
	for _, p := range pilots {
		switch {
		case text == "":
		case p.Job == text, strings.HasSuffix(text, p.Name), ID(p.Name) == text:
			whole = append(whole, p)
		case len(text) >= leastPart && strings.HasPrefix(ID(p.Name), text):
			part = append(part, p)
		}
	}
	if len(whole) > 0 {
		return whole
	}
	return part
}

// Find tries the texts in order and returns the first pilot that one of them names by the rules of Named. It fails
// with ErrAmbiguous if a text names several, and with ErrNotFound if none names one.
func Find(pilots []Pilot, texts ...string) (Pilot, error) {
	for _, text := range texts {
		switch found := Named(pilots, text); len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return Pilot{}, fmt.Errorf("%s: %w: %s, %s", text, ErrAmbiguous, found[0].Name, found[1].Name)
		}
	}
	return Pilot{}, ErrNotFound
}

// FindPrinted returns the first of the pilots whose log contains a text in one line. It reads the logs one after the
// other. It is for bundles that are staged again, because the server forgets their workers. It fails with ErrNotFound
// if no log has the text.
func FindPrinted(ctx context.Context, b Backend, pilots []Pilot, text string) (Pilot, error) {
	for _, p := range pilots {
		s := &searcher{text: []byte(text)}
		err := b.WriteLog(ctx, s, p, false)
		switch {
		case s.found:
			return p, nil
		case err != nil && !errors.Is(err, ErrNoLog):
			return Pilot{}, err
		}
	}
	return Pilot{}, ErrNotFound
}

// searcher is a writer that ends with io.EOF after a text has been written.
type searcher struct {
	text, last []byte
	found      bool
}

// Write searches the bytes, and those of the writes before.
func (s *searcher) Write(data []byte) (int, error) {
	s.last = append(s.last, data...)
	if bytes.Contains(s.last, s.text) {
		s.found = true
		return 0, io.EOF
	}
	s.last = append([]byte(nil), s.last[max(0, len(s.last)-len(s.text)):]...)
	return len(data), nil
}

// lastLines is a writer that keeps the last bytes.
type lastLines struct{ kept []byte }

const mostKept = 1 << 10

// Write keeps the last bytes.
func (l *lastLines) Write(data []byte) (int, error) {
	l.kept = append(l.kept, data...)
	l.kept = append([]byte(nil), l.kept[max(0, len(l.kept)-mostKept):]...)
	return len(data), nil
}

// String returns the last whole lines.
func (l *lastLines) String() string {
	text := l.kept
	if len(text) == mostKept {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return strings.TrimSpace(string(text))
}
