package engine

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/mask"
)

// ownBytes limits the client's messages that are kept.
const ownBytes = 64 << 10

// clientStderr separates the standard error of an engine's client. The client writes its own messages
// and warnings there, and the command's standard error. Package enter writes a mark before the command
// begins: the texts before the mark are the client's, and later ones are the command's.
type clientStderr struct {
	to   *os.File // the command's standard error; nil discards
	mask *mask.Mask
	mark []byte

	marked bool
	own    []byte        // the end of the text before the mark
	last   []byte        // the end of the text after it
	err    syscall.Errno // of the first failed write
}

func newClientStderr(to *os.File, masked []string) *clientStderr {
	return &clientStderr{to: to, mask: mask.New(masked), mark: []byte("\x00" + rand.Text() + "\x00")}
}

// Write never fails, so that a full disk does not stop the command.
func (s *clientStderr) Write(text []byte) (int, error) {
	n := len(text)
	if !s.marked {
		s.own = append(s.own, text...)
		var after []byte
		if s.own, after, s.marked = bytes.Cut(s.own, s.mark); !s.marked {
			s.own = s.own[max(0, len(s.own)-ownBytes):]
			return n, nil
		}
		text = after
	}
	s.pass(text)
	return n, nil
}

// pass writes to the command's standard error.
func (s *clientStderr) pass(text []byte) { s.write(s.mask.Next(text)) }

// end writes what a mask has kept back, at the end.
func (s *clientStderr) end() { s.write(s.mask.Rest()) }

func (s *clientStderr) write(text []byte) {
	s.last = append(s.last, text...)
	s.last = s.last[max(0, len(s.last)-ownBytes):]
	if s.to == nil || len(text) == 0 {
		return
	}
	if _, err := s.to.Write(text); err != nil && s.err == 0 {
		s.err = errnoOf(err)
	}
}

// message returns the client's last message, after its end. A message at the end of a command that has
// begun follows the command's text.
func (s *clientStderr) message() string {
	if text := initproc.LastMessage(string(s.last)); text != "" {
		return text
	}
	return initproc.LastMessage(string(s.own))
}

var _ io.Writer = (*clientStderr)(nil)

// maskedStdout is the command's standard output without masked texts. Without such texts the client has the file itself.
type maskedStdout struct {
	to   *os.File
	mask *mask.Mask
	err  syscall.Errno // of the first failed write
}

// newStdout returns the writer for the client's standard output, and the masked one if there is one.
func newStdout(to *os.File, masked []string) (io.Writer, *maskedStdout) {
	m := mask.New(masked)
	if to == nil || m == nil {
		return initproc.WriterOrNil(to), nil
	}
	s := &maskedStdout{to: to, mask: m}
	return s, s
}

// Write never fails, so that a full disk does not stop the command.
func (s *maskedStdout) Write(text []byte) (int, error) {
	s.write(s.mask.Next(text))
	return len(text), nil
}

// end writes what the mask has kept back, at the end, and returns the error of the first write that failed.
func (s *maskedStdout) end() syscall.Errno {
	if s == nil {
		return 0
	}
	s.write(s.mask.Rest())
	return s.err
}

func (s *maskedStdout) write(text []byte) {
	if len(text) == 0 {
		return
	}
	if _, err := s.to.Write(text); err != nil && s.err == 0 {
		s.err = errnoOf(err)
	}
}

// errnoOf returns the error number of a failed write.
func errnoOf(err error) syscall.Errno {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return syscall.EIO
}
