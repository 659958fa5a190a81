package fetch

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
)

const journalName = "journal"

// journal records the fetched parts of a target. It is safe for concurrent use. If it cannot be
// written, more is fetched again.
type journal struct {
	path   string
	header string

	mu     sync.Mutex
	file   *os.File
	lines  *bufio.Writer
	unsaid int64 // bytes of the files whose lines are in the buffer
}

// remembered is the content of a journal.
type remembered struct {
	whole map[string]int64 // the sizes of complete files
	parts map[string]int64 // the fetched bytes of other files
}

// openJournal opens the journal at path for the target in header. kept reports whether there is one
// with that header, which it continues.
func openJournal(path, header string) (j *journal, kept bool, err error) {
	j = &journal{path: path, header: header + "\n"}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read journal: %w", err)
	}
	if !strings.HasPrefix(string(text), j.header) {
		return j, false, nil
	}
	whole := strings.LastIndexByte(string(text), '\n') + 1 // cut off an incomplete line
	if j.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
		err = j.file.Truncate(int64(whole))
	}
	if err != nil {
		return nil, false, fmt.Errorf("open journal: %w", err)
	}
	j.lines = bufio.NewWriterSize(j.file, 32<<10)
	return j, true, nil
}

func (j *journal) reset() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closeFile()
	var err error
	if j.file, err = os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600); err != nil {
		return fmt.Errorf("begin journal: %w", err)
	}
	j.lines = bufio.NewWriterSize(j.file, 32<<10)
	if _, err := j.file.WriteString(j.header); err != nil {
		return fmt.Errorf("begin journal: %w", err)
	}
	return nil
}

// whole records a file that was closed with all its bytes.
func (j *journal) whole(name string, size int64) {
	const most = 4 << 20 // limits the bytes to fetch again if the program dies
	j.mu.Lock()
	defer j.mu.Unlock()
	j.line("whole", name, size)
	if j.unsaid += size; j.unsaid >= most {
		j.flush()
	}
}

// part records that the first n bytes of a file have been flushed.
func (j *journal) part(name string, n int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.line("part", name, n)
	j.flush()
}

func (j *journal) line(what, name string, n int64) {
	if j.lines != nil {
		_, _ = fmt.Fprintf(j.lines, "%s %d %s\n", what, n, strconv.Quote(name)) // the writer keeps its error, and writes no more
	}
}

func (j *journal) flush() {
	j.unsaid = 0
	if j.lines != nil {
		_ = j.lines.Flush() // the writer keeps its error, and writes no more
	}
}

// read returns the content of the journal, up to the first line that it does not understand.
func (j *journal) read() (remembered, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flush()
	r := remembered{whole: map[string]int64{}, parts: map[string]int64{}}
	f, err := os.Open(j.path)
	if err != nil {
		return r, fmt.Errorf("read journal: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	lines.Scan() // the header
	for lines.Scan() {
		what, name, n, ok := parseLine(lines.Text())
		if !ok {
			break
		}
		delete(r.parts, name)
		switch {
		case what == "whole":
			r.whole[name] = n
		case n > 0:
			r.parts[name] = n
		}
	}
	if err := lines.Err(); err != nil {
		return r, fmt.Errorf("read journal: %w", err)
	}
	return r, nil
}

func parseLine(line string) (what, name string, n int64, ok bool) {
	what, rest, _ := strings.Cut(line, " ")
	number, quoted, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	name, nameErr := strconv.Unquote(quoted)
	return what, name, n, err == nil && nameErr == nil && (what == "whole" || what == "part")
}

func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closeFile()
}

func (j *journal) closeFile() {
	if j.file != nil {
		j.flush()
		_ = j.file.Close() // lost lines are fetched again
		j.file, j.lines = nil, nil
	}
}

func (j *journal) remove() error {
	j.close()
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove journal: %w", err)
	}
	return nil
}
