package engine

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
)

// ownBytes limits the client's messages that are kept.
const ownBytes = 64 << 10

// clientStderr separates the standard error of an engine's client. The client writes its own messages
// and warnings there, and the command's standard error. Package enter writes a mark before the command
// begins: the texts before the mark are the client's, and later ones are the command's.
type clientStderr struct {
	to   *os.File // the command's standard error; nil discards
	mark []byte

	marked bool
	own    []byte        // the end of the text before the mark
	last   []byte        // the end of the text after it
	err    syscall.Errno // of the first failed write
}

func newClientStderr(to *os.File) *clientStderr {
	return &clientStderr{to: to, mark: []byte("\x00" + rand.Text() + "\x00")}
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
func (s *clientStderr) pass(text []byte) {
	s.last = append(s.last, text...)
	s.last = s.last[max(0, len(s.last)-ownBytes):]
	if s.to == nil || len(text) == 0 {
		return
	}
	if _, err := s.to.Write(text); err != nil && s.err == 0 {
		s.err = syscall.EIO
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			s.err = errno
		}
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
