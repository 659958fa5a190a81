package results

import (
	"io/fs"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// upload measures the progress of an upload. Its total and its progress are bytes of files, read while they are packed:
// the sent bytes are compressed, and tell nothing about the rest. As an io.Writer it sees the sent bytes.
type upload struct {
	total tally
	// left are the entries that no archive has: pipes and sockets.
	left leftOut
	tell func(bytes int) // of each sent piece; nil for nobody

	read     atomic.Int64
	transfer transfer.Transfer
}

// add counts an entry before the upload begins.
func (u *upload) add(below string, info fs.FileInfo) {
	switch kind := info.Mode().Type(); {
	case kind.IsRegular(), kind.IsDir(), kind == fs.ModeSymlink:
		u.total.add(info)
	default:
		u.left.add(below)
	}
}

// pack counts bytes that were read from files.
func (u *upload) pack(n int64) { u.read.Add(n) }

// Write tells of sent bytes.
func (u *upload) Write(p []byte) (int, error) {
	if u.tell != nil {
		u.tell(len(p))
	}
	return len(p), nil
}

// sentence tells the progress. Files that have grown since they were counted do not carry it beyond the total.
func (u *upload) sentence(now time.Time) string {
	u.transfer.SetBytes(min(u.read.Load(), u.total.bytes), u.total.bytes)
	p := u.transfer.Progress(now)
	return "Uploading results: " + p.Amount() + p.TimeLeft() + "."
}

// details describe what was sent.
func (u *upload) details() string { return u.total.String() + u.left.String() }

// mostNames bounds the names in a leftOut.
const mostNames = 3

// leftOut are entries that are left out, a few by name.
type leftOut struct {
	count int64
	names []string
}

func (l *leftOut) add(below string) {
	if l.count++; len(l.names) < mostNames {
		l.names = append(l.names, quoted(below))
	}
}

// String is the end of a sentence; empty if nothing is left out.
func (l *leftOut) String() string {
	if l.count == 0 {
		return ""
	}
	text := "; " + pipesOrSockets(l.count) + " left out"
	for i, name := range l.names {
		text += []string{": ", ", "}[min(i, 1)] + name
	}
	if l.count > mostNames {
		text += ", …"
	}
	return text
}

func pipesOrSockets(n int64) string {
	if n == 1 {
		return "1 pipe or socket"
	}
	return strconv.FormatInt(n, 10) + " pipes or sockets"
}
