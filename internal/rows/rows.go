// Package rows reads files that grow by a row at a time: JSON lines, and comma-separated tables whose first row names the
// columns. Programs of researchers write them, and may be writing them now, so that a row that cannot be read is left out,
// and so is one that is longer than MaxLine.
package rows

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// MaxLine is the length of the longest row that is read, in bytes.
const MaxLine = 64 << 10

// Kind is a kind of files with rows; 0 for other files.
type Kind int

// The kinds.
const (
	JSON Kind = iota + 1 // .jsonl, .ndjson
	CSV                  // .csv
)

// KindOf returns the kind of a file by its name.
func KindOf(name string) Kind {
	switch strings.ToLower(path.Ext(name)) {
	case ".jsonl", ".ndjson":
		return JSON
	case ".csv":
		return CSV
	}
	return 0
}

// Last returns the last row of a file of a size: end has its last bytes, all or MaxLine of them, and head its first bytes,
// which only CSV needs. It returns nil if there is no row, or if its last line is none.
func Last(kind Kind, head, end string, size int64) map[string]any {
	last := lastLine(end, size)
	if kind == JSON {
		return jsonRow([]byte(last))
	}
	first, _, whole := strings.Cut(head, "\n")
	first = strings.TrimRight(first, "\r")
	if !whole || first == last {
		return nil
	}
	return csvRow(csvRecord(first), last)
}

// lastLine returns the last line of a file of which end is the end; empty if the line is longer than that.
func lastLine(end string, size int64) string {
	end = strings.TrimRight(end, "\r\n \t")
	i := strings.LastIndexByte(end, '\n')
	if i < 0 && size > MaxLine {
		return ""
	}
	return end[i+1:]
}

// jsonRow reads a line of JSON; nil if it is no object.
func jsonRow(line []byte) map[string]any {
	if line = bytes.TrimSpace(line); !bytes.HasPrefix(line, []byte("{")) || !utf8.Valid(line) {
		return nil
	}
	value, err := codalab.DecodePython(line)
	if err != nil {
		return nil
	}
	row, _ := value.(map[string]any)
	return row
}

// csvRecord reads one line of a table; nil if it is none.
func csvRecord(line string) []string {
	r := csv.NewReader(strings.NewReader(line))
	r.TrimLeadingSpace = true
	cells, err := r.Read()
	if err != nil || !utf8.ValidString(line) {
		return nil
	}
	return cells
}

// csvRow gives the cells of a line their names; nil if their numbers differ.
func csvRow(names []string, line string) map[string]any {
	cells := csvRecord(line)
	if len(cells) == 0 || len(names) != len(cells) {
		return nil
	}
	row := make(map[string]any, len(names))
	for i, name := range names {
		if name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")); name != "" {
			row[name] = cells[i]
		}
	}
	return row
}

// Each calls do for each row of a stream, in their order. The error is that of the stream.
func Each(in io.Reader, kind Kind, do func(row map[string]any)) error {
	_, err := (&Reader{Kind: kind}).Read(in, true, do)
	return err
}

// Reader reads the rows of a file, one part after another as the file grows.
type Reader struct {
	Kind Kind
	// Skipped is the number of lines that are no rows.
	Skipped int

	// names are those of the columns of a table, once begun is set.
	names []string
	begun bool
}

// Read calls do for each row of the next part of the file. whole is the number of bytes of lines that have ended: the next
// part begins after them. A line without an end is read only if it is the last one of the file.
func (r *Reader) Read(in io.Reader, last bool, do func(row map[string]any)) (whole int64, err error) {
	lines := bufio.NewReaderSize(in, MaxLine)
	for {
		line, err := lines.ReadSlice('\n')
		size, long := int64(len(line)), false
		if errors.Is(err, bufio.ErrBufferFull) {
			var more int64
			more, err = skipLine(lines)
			size, long = size+more, true
		}
		atEnd := errors.Is(err, io.EOF)
		switch {
		case err != nil && !atEnd:
			return whole, fmt.Errorf("read rows: %w", err)
		case atEnd && !last:
			return whole, nil
		case long:
			r.long()
		default:
			r.line(strings.TrimRight(string(line), "\r\n"), do)
		}
		if whole += size; atEnd {
			return whole, nil
		}
	}
}

// long leaves out a line that is too long. As the first one of a table it leaves all columns without a name.
func (r *Reader) long() {
	r.Skipped++
	r.begun = true
}

// line reads a line.
func (r *Reader) line(text string, do func(row map[string]any)) {
	var row map[string]any
	switch {
	case text == "":
		return
	case r.Kind == CSV && !r.begun:
		r.names, r.begun = csvRecord(text), true
		return
	case r.Kind == CSV:
		row = csvRow(r.names, text)
	default:
		row = jsonRow([]byte(text))
	}
	if row == nil {
		r.Skipped++
		return
	}
	do(row)
}

// skipLine reads the rest of a line, and returns its size.
func skipLine(lines *bufio.Reader) (size int64, err error) {
	for {
		part, err := lines.ReadSlice('\n')
		size += int64(len(part))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return size, err
		}
	}
}

// Value returns the value of a row at a path of keys, separated by slashes; nil if there is none. A key may have slashes of
// its own, as in train/loss.
func Value(row map[string]any, at string) any {
	if value, ok := row[at]; ok {
		return value
	}
	for i, c := range at {
		if inside, ok := row[at[:i]].(map[string]any); ok && c == '/' {
			if value := Value(inside, at[i+1:]); value != nil {
				return value
			}
		}
	}
	return nil
}
