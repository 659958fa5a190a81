package initproc

import (
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// tailBytes is how much of a program's output a tail keeps.
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

// String waits for the end of the output and returns what was kept.
func (t *tail) String() string {
	t.reading.Wait()
	return strings.TrimSpace(string(t.text))
}

// StderrMark is a position in a standard error that is a file: what is written there later can be
// read back. In other files nothing can be read.
type StderrMark struct {
	file   *os.File
	offset int64
}

// MarkStderr returns the present end of a standard error, which may be nil.
func MarkStderr(f *os.File) StderrMark {
	if f == nil {
		return StderrMark{}
	}
	info, err := f.Stat()
	if err != nil {
		return StderrMark{}
	}
	return StderrMark{file: f, offset: info.Size()}
}

// Text returns the beginning of what was written since.
func (m StderrMark) Text() string {
	if m.file == nil {
		return ""
	}
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(m.file.Fd()))) // the mark's file may be open for writing only
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	text := make([]byte, tailBytes)
	n, err := f.ReadAt(text, m.offset)
	if n == 0 && err != nil {
		return ""
	}
	return strings.TrimSpace(string(text[:n]))
}
