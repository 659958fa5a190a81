package export

import (
	"fmt"
	"io"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// These bound the description, which is read into memory: its bytes; its values, of which an object counts as four more,
// because Go needs a hundred bytes even for the empty values in three bytes of JSON; and its items and its bundles, of
// which a worksheet of cl-server has as many at most.
const (
	mostDocument = 64 << 20
	mostValues   = 2_000_000
	objectValues = 4
	mostItems    = 100_000
)

// TooLargeError is the error for a worksheet over one of the bounds.
type TooLargeError struct {
	// Bound is a sentence about the bound, such as: it has 3 bundles, and may have 2.
	Bound string
}

// Error names the bound.
func (e *TooLargeError) Error() string {
	return "the worksheet is too large for an archive: " + e.Bound
}

// weigher passes JSON on, and fails with a *TooLargeError as soon as it has too many bytes or values. A JSON decoder reads a
// value whole before it makes anything of it, so that it makes nothing of one that is too large.
type weigher struct {
	io.Reader
	bytes, values    int
	inText, escaping bool
}

// Read reads on.
func (w *weigher) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	w.weigh(b[:n])
	if w.bytes > mostDocument {
		return 0, &TooLargeError{fmt.Sprintf("the description of its items and bundles has more than %s", codalab.FormatSize(mostDocument))}
	}
	if w.values > mostValues {
		return 0, &TooLargeError{fmt.Sprintf("the description of its items and bundles has more than %d values", mostValues)}
	}
	return n, err
}

// weigh counts bytes, and the values that begin or follow there.
func (w *weigher) weigh(b []byte) {
	w.bytes += len(b)
	for _, c := range b {
		switch {
		case w.escaping:
			w.escaping = false
		case w.inText && c == '\\':
			w.escaping = true
		case c == '"':
			w.inText = !w.inText
		case w.inText:
		case c == '{':
			w.values += 1 + objectValues
		case c == '[', c == ',':
			w.values++
		}
	}
}
