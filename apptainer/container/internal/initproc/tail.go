package initproc

import (
	"io"
	"os"
	"strconv"
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

// StderrMark is a position in a standard error that is a file, whose later text can be read back.
// Nothing can be read back from other kinds of files.
type StderrMark struct {
	file   *os.File
	offset int64
}

// MarkStderr returns the current end of a standard error, which may be nil.
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

// Text returns the first part of the text after the mark.
func (m StderrMark) Text() string {
	if m.file == nil {
		return ""
	}
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(m.file.Fd()))) // the mark's file may be open only for writing
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
