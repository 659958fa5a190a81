package contents

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// The placeholders in a summary for missing and binary files
// (codalab/worker/file_util.py: NONE_PLACEHOLDER, BINARY_PLACEHOLDER).
const (
	missingText = "<none>"
	binaryText  = "<binary>"
)

// maxSummary bounds the bytes of one summary, in each of its two parts.
const maxSummary = 32 << 20

// ErrSummary means a summary of no lines, or of too many.
var ErrSummary = errors.New("a summary needs a number of lines, and not too many")

// Summarize returns whole lines from the beginning and the end of the file at
// p, with args.TruncationText between them when there is more. A missing file
// is "<none>", one that is not UTF-8 "<binary>"
// (codalab/worker/file_util.py: summarize_file).
func Summarize(root *os.Root, p string, args codalab.ReadArgs) ([]byte, error) {
	width := max(args.MaxLineLength, 1)
	if args.HeadLines < 0 || args.TailLines < 0 || args.HeadLines+args.TailLines < 1 ||
		max(args.HeadLines, args.TailLines, width) > maxSummary ||
		max(args.HeadLines, args.TailLines)*width > maxSummary {
		return nil, ErrSummary
	}
	f, err := openFile(root, clean(p))
	if errors.Is(err, ErrNotFound) {
		return []byte(missingText), nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("summarize: %w", err)
	}
	s := summary{file: f, size: info.Size(), args: args, width: int64(width)}
	return s.text()
}

type summary struct {
	file  io.ReaderAt
	size  int64
	args  codalab.ReadArgs
	width int64
}

func (s summary) text() ([]byte, error) {
	headBytes, tailBytes := int64(s.args.HeadLines)*s.width, int64(s.args.TailLines)*s.width
	if s.size <= headBytes+tailBytes {
		all, err := s.lines(0, s.size)
		if err != nil || all == nil {
			return []byte(binaryText), err
		}
		if len(all) <= s.args.HeadLines+s.args.TailLines {
			return endLine(bytes.Join(all, nil)), nil
		}
		return s.join(all[:s.args.HeadLines], all[len(all)-s.args.TailLines:]), nil
	}
	head, err := s.lines(0, headBytes)
	if err != nil || head == nil {
		return []byte(binaryText), err
	}
	if n := len(head); n > 0 && !bytes.HasSuffix(head[n-1], []byte("\n")) {
		head = head[:n-1] // the end of its last line is missing
	}
	// Read one byte more: if that is a newline, the first line is whole. The first line
	// is dropped.
	tail, err := s.lines(s.size-tailBytes-1, tailBytes+1)
	if err != nil || tail == nil {
		return []byte(binaryText), err
	}
	if len(tail) > 0 {
		tail = tail[1:]
	}
	return s.join(head[:min(len(head), s.args.HeadLines)], tail[max(0, len(tail)-s.args.TailLines):]), nil
}

func (s summary) join(head, tail [][]byte) []byte {
	out := bytes.Join(head, nil)
	if s.args.HeadLines > 0 && s.args.TailLines > 0 {
		out = append(out, s.args.TruncationText...)
	}
	return endLine(append(out, bytes.Join(tail, nil)...))
}

// endLine ends text with a newline.
func endLine(text []byte) []byte {
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return text
}

// lines returns the lines of a part of the file with their ends; nil when it
// is not text. Characters that the part cuts are left out.
func (s summary) lines(offset, length int64) ([][]byte, error) {
	text, err := io.ReadAll(io.NewSectionReader(s.file, offset, length))
	if err != nil {
		return nil, fmt.Errorf("summarize: %w", err)
	}
	for range utf8.UTFMax - 1 {
		if offset > 0 && len(text) > 0 && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
	}
	if offset+length < s.size {
		text = text[:len(text)-termtext.BegunRune(text)]
	}
	if !utf8.Valid(text) {
		return nil, nil
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines[:len(lines):len(lines)], nil
}
