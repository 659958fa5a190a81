package initproc

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/mask"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// pipeBytes is the usual size of a pipe (pipe(7)).
const pipeBytes = 64 << 10

// firstBytes is the length of the first reads of a stream. Most commands write little, and a kept init has many streams.
const firstBytes = 4 << 10

// headBytes limits the output that a stream keeps in memory.
const headBytes = 4096

// stream copies the output of the container from a pipe to a file. As in Docker, the command gets the
// pipe. If it had the file itself, `echo >/dev/stdout` would open the file again and empty it.
type stream struct {
	in  int // the container's end
	out int // this process's end; reading from it never blocks
	to  int // the file; every write appends

	mu   sync.Mutex
	mask *mask.Mask
	buf  []byte
	head []byte        // the first bytes
	err  syscall.Errno // of the first failed write
	// closed is set when the file is no longer this stream's. The container may have given the pipe to a process outside.
	closed bool
}

// newStream makes the stream to a file without masked texts, and copies in the background.
func newStream(to int, masked []string) (*stream, error) {
	ends := make([]int, 2)
	if err := unix.Pipe2(ends, unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe for its output: %w", err)
	}
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, fmt.Errorf("make a pipe for its output: %w", err)
	}
	s := &stream{in: ends[1], out: ends[0], to: to, mask: mask.New(masked), buf: make([]byte, firstBytes)}
	background.Detach(s.copy) // ends with this process, or after close
	return s, nil
}

// A command that writes many short lines would wake copy for each, and that takes as long as the command
// itself. So copy rests after a read of less than shortRead bytes. The line is already in the file.
const (
	shortRead        = 4 << 10
	restMilliseconds = 1
)

// copy copies all output.
func (s *stream) copy() {
	for {
		ready := []unix.PollFd{{Fd: int32(s.out), Events: unix.POLLIN}} //nolint:gosec // a descriptor
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return // cannot happen; flush still copies at the end
		}
		copied, over := s.flush()
		if over {
			_ = unix.Close(s.out) // nobody else uses it after close
			return
		}
		if copied < shortRead {
			_, _ = unix.Poll(nil, restMilliseconds)
		}
	}
}

// flush copies the output that is in the pipe, and returns its length. over is set when no process has the container's end of it,
// or after close.
func (s *stream) flush() (copied int, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		n, err := unix.Read(s.out, s.buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // EAGAIN: the pipe is empty
			return copied, false
		case n == 0:
			return copied, true
		default:
			s.write(s.mask.Next(s.buf[:n]))
			copied += n
			if n == len(s.buf) && n < pipeBytes {
				s.buf = make([]byte, pipeBytes)
			}
		}
	}
	return copied, true
}

// end copies the output that is in the pipe, and what a mask has kept back.
func (s *stream) end() {
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.mask.Rest())
}

// write appends to the file. It drops output that the file does not take, so that a full disk does not
// stop the command, and notes the error.
func (s *stream) write(text []byte) {
	s.head = append(s.head, text[:min(len(text), headBytes-len(s.head))]...)
	for len(text) > 0 {
		n, err := unix.Write(s.to, text)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			if errno, ok := errors.AsType[syscall.Errno](err); ok && s.err == 0 {
				s.err = errno
			}
			return
		}
		text = text[n:]
	}
}

// output has the container's standard output and standard error.
type output struct {
	// fds are the container's descriptors.
	fds [2]int
	// streams has the streams to files. Other outputs, such as a pipe, are passed on as they are.
	streams []*stream
	// stderr is the stream of the standard error; nil if there is none.
	stderr *stream
}

// openOutput replaces the files among two outputs for the container. If both outputs are one
// file, they share a stream, which keeps the order of the texts. Masked texts do not reach a file.
func openOutput(stdout, stderr int, masked []string) (o output, err error) {
	o.fds = [2]int{stdout, stderr}
	var files [2]unix.Stat_t
	for i, fd := range o.fds {
		if err := unix.Fstat(fd, &files[i]); err != nil {
			return o, fmt.Errorf("look at its output: %w", err)
		}
		if files[i].Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if i == 1 && files[0].Dev == files[1].Dev && files[0].Ino == files[1].Ino {
			o.fds[1], o.stderr = o.fds[0], o.streams[0]
			continue
		}
		s, err := newStream(fd, masked)
		if err != nil {
			return o, err
		}
		o.fds[i] = s.in
		o.streams = append(o.streams, s)
		if i == 1 {
			o.stderr = s
		}
	}
	return o, nil
}

// flush copies all output at its end, and returns the error of the first write that failed, or 0.
func (o output) flush() (failed syscall.Errno) {
	for _, s := range o.streams {
		s.end()
		if failed == 0 {
			failed = s.err
		}
	}
	return failed
}

// close ends the streams after flush, in a process that goes on.
func (o output) close() {
	for _, s := range o.streams {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		_ = unix.Close(s.in) // copy closes the other end
	}
}

// Stdio returns the descriptors 0, 1 and 2 for a program of the container.
func (p *Process) Stdio(stdin uintptr) []uintptr {
	return []uintptr{stdin, uintptr(p.output.fds[0]), uintptr(p.output.fds[1])}
}

// StderrHead returns the first part of the standard error, or "" if that is not a file.
func (p *Process) StderrHead() string {
	s := p.output.stderr
	if s == nil {
		return ""
	}
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(string(s.head))
}

// Output copies the output of a command to files, as an init does for the command of its container.
type Output struct{ output }

// OpenOutput returns the Output to two files, which may be one file. Masked texts do not reach them.
func OpenOutput(stdout, stderr *os.File, masked []string) (Output, error) {
	o, err := openOutput(int(stdout.Fd()), int(stderr.Fd()), masked)
	return Output{o}, err
}

// Descriptors returns the command's standard output and standard error.
func (o Output) Descriptors() (stdout, stderr uintptr) { return uintptr(o.fds[0]), uintptr(o.fds[1]) }

// Flush copies all output that the command has written, at its end, and returns the error of the first write that failed,
// or 0.
func (o Output) Flush() syscall.Errno { return o.flush() }
