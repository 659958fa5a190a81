package cachetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/cache"
)

// Values of record.Did.
const (
	didGet      = "get"    // Get has returned, perhaps with a content
	didFill     = "fill"   // a fill has begun
	didFilled   = "filled" // a fill is about to succeed
	didFail     = "fail"   // a fill is about to fail
	didRead     = "read"   // all bytes of a content were read
	didUnpin    = "unpin"  // Unpin is about to be called
	didTrim     = "trim"
	didVerify   = "verify"
	didList     = "list"
	didPin      = "pin"
	didSignal   = "signal" // the process is about to kill or stop itself
	didSabotage = "sabotage"
	didEnd      = "end" // the process ends as planned
)

// record is a line of a process's log. All hosts of a test share the clock of its times.
type record struct {
	Did        string
	Process    int           `json:",omitempty"`
	Begin, End time.Duration `json:",omitempty"`
	Key        int           `json:",omitempty"`
	Fill       string        `json:",omitempty"` // the fill that made the content
	Holder     string        `json:",omitempty"`
	Path       string        `json:",omitempty"`
	Bytes      int64         `json:",omitempty"`
	N          int           `json:",omitempty"` // contents removed by a trim
	Own        bool          `json:",omitempty"` // Get returned its own fill's content
	Err        string        `json:",omitempty"` // see kind
	// Wrong describes a promise that the process saw broken.
	Wrong string `json:",omitempty"`
}

// journal is the log of one process. It is on a plain disk, or on one that all machines share. A
// record survives the process.
type journal struct {
	file    *os.File
	process int
	remote  bool
}

// now returns the time by a clock that all processes share: this machine's monotonic clock or, on
// several machines, the time of day.
func (j *journal) now() time.Duration {
	clock := int32(unix.CLOCK_MONOTONIC)
	if j != nil && j.remote {
		clock = unix.CLOCK_REALTIME
	}
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		panic(err) // it cannot fail
	}
	return time.Duration(now.Nano())
}

func journalName(dir string, process int) string {
	return filepath.Join(dir, fmt.Sprintf("p%d.log", process))
}

func openJournal(dir string, process int, remote bool) (*journal, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if remote {
		flags |= os.O_SYNC
	}
	f, err := os.OpenFile(journalName(dir, process), flags, 0o600)
	return &journal{file: f, process: process, remote: remote}, err
}

// add writes a record. A process that cannot log ends, because it could prove nothing.
func (j *journal) add(r record) {
	r.Process = j.process
	if r.End == 0 {
		r.End = j.now()
	}
	text, err := json.Marshal(r)
	if err == nil {
		_, err = j.file.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "write log:", err)
		os.Exit(1)
	}
}

// readJournal returns the records of a process. It ignores a cut last line, which a killed process
// may leave.
func readJournal(dir string, process int) ([]record, error) {
	text, err := os.ReadFile(journalName(dir, process))
	if errors.Is(err, fs.ErrNotExist) { // it was killed before it could begin
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []record
	for in := bufio.NewReader(bytes.NewReader(text)); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("read log of process %d: %w", process, err)
		}
		all = append(all, r)
	}
}

// errBroken is the error of a fill that is meant to fail.
var errBroken = errors.New("the fill is to fail")

// kind returns a short name of an error for the log, such as the name of a system error; "" for
// nil.
func kind(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case strings.Contains(err.Error(), errBroken.Error()): // it may be the text of a panic
		return "broken fill"
	case errors.Is(err, cache.ErrFull):
		return "full"
	case errors.Is(err, cache.ErrLost):
		return "lost"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "ended"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.Is(err, fs.ErrNotExist):
		return "ENOENT"
	default:
		return "other"
	}
}

// transient reports whether a faulty file system may have caused the error.
func transient(err error) bool {
	return slices.Contains([]string{"EIO", "ESTALE", "ETIMEDOUT", "ENOSPC", "EDQUOT", "EAGAIN", "EINTR", "EREMOTEIO"}, kind(err))
}
