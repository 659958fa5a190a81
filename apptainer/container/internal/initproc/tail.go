package initproc

import (
	"io"
	"strings"
	"sync"
)

// tailBytes limits the output that a tail keeps.
const tailBytes = 4096

// tail keeps the end of a program's output.
type tail struct {
	reading sync.WaitGroup
	text    []byte
}

// readTail reads r to its end in the background, and closes it.
func readTail(r io.ReadCloser) *tail {
	t := &tail{}
	t.reading.Go(func() {
		defer func() { _ = r.Close() }()
		buf := make([]byte, tailBytes)
		for {
			n, err := r.Read(buf)
			t.text = append(t.text, buf[:n]...)
			t.text = t.text[max(0, len(t.text)-tailBytes):]
			if err != nil {
				return
			}
		}
	})
	return t
}

// String waits for the end of the output and returns its kept part.
func (t *tail) String() string {
	t.reading.Wait()
	return strings.TrimSpace(string(t.text))
}
