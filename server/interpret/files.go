package interpret

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// ReadFile returns the first limit bytes of a file of a bundle, or all if it has fewer, for the user of
// the request. The path is relative to the bundle; empty for the bundle itself. The error wraps
//
//   - fs.ErrNotExist if there is no such bundle or file, or if it is a link;
//   - ErrDirectory if it is a directory;
//   - fs.ErrPermission if the user may not read it.
//
// A *UsageError is shown to the user, other errors are not.
type ReadFile func(ctx context.Context, bundleUUID, path string, limit int64) ([]byte, error)

// ErrDirectory is the error of ReadFile for a directory.
var ErrDirectory = errors.New("is a directory")

// fileKey is a file of a bundle.
type fileKey struct{ uuid, path string }

// files reads files for one answer.
type files struct {
	read ReadFile
	// left is the number of bytes that may still be read, and toShow the number that may still be in the
	// answer.
	left, toShow int64
	count        int
	// values are the contents of files that were read as values; nil for unreadable files.
	values map[fileKey]any
	cached int
	posts  posts
}

func (in Interpreter) files() *files {
	return &files{read: in.Read, left: maxRead, toShow: maxShown, values: map[fileKey]any{}, posts: posts{}}
}

// load reads the first bytes of a file.
func (f *files) load(ctx context.Context, key fileKey, limit int64) ([]byte, error) {
	f.count++
	if f.left <= 0 || f.count > maxFiles {
		return nil, usage("more than %d files or %d MiB to read", maxFiles, maxRead>>20)
	}
	data, err := f.read(ctx, key.uuid, key.path, limit)
	if int64(len(data)) > limit {
		data = data[:limit]
	}
	f.left -= int64(len(data))
	return data, err
}

// countBytes counts n bytes of the answer. It fails if the answer gets too large.
func (f *files) countBytes(n int64) error {
	if f.toShow -= n; f.toShow < 0 {
		return usage("more than %d MiB to show", maxShown>>20)
	}
	return nil
}

// head returns the first lines of a file, each with its newline (codalab/rest/interpret.py: head_target;
// codalab/worker/file_util.py: summarize_file).
func (f *files) head(ctx context.Context, key fileKey, lines int) ([]string, error) {
	data, lines, err := f.beginning(ctx, key, lines)
	if err != nil {
		return nil, err
	}
	return headLines(data, lines*maxLineBytes, lines), nil
}

// shownHead is head for people: of a progress bar, which a program writes over again and again, there is one line with its last
// state. CodaLab's own server has a line for each state.
func (f *files) shownHead(ctx context.Context, key fileKey, lines int) ([]string, error) {
	data, lines, err := f.beginning(ctx, key, lines)
	limit := lines * maxLineBytes
	if err == nil && limit < mostOfABar && barGoesOn(data, lines) {
		limit = mostOfABar
		data, err = f.load(ctx, key, mostOfABar+1)
	}
	if err != nil {
		return nil, err
	}
	return shownLines(data, limit, lines), nil
}

// barGoesOn reports whether the last of a number of lines is one of many states, which may have no end yet.
func barGoesOn(data []byte, lines int) bool {
	last := data[bytes.LastIndexByte(data, '\n')+1:]
	return bytes.IndexByte(last, '\r') >= 0 && bytes.Count(data, []byte("\n")) < lines
}

// beginning reads what the first lines of a file can have, and a byte more if the file goes on. It returns the number of lines,
// which is bounded.
func (f *files) beginning(ctx context.Context, key fileKey, lines int) ([]byte, int, error) {
	if lines < 1 {
		return nil, 0, usage("the number of lines must be at least 1")
	}
	lines = min(lines, maxHeadLines)
	data, err := f.load(ctx, key, int64(lines*maxLineBytes)+1)
	return data, lines, err
}

// The characters that end a line in Python, without the carriage return, which ends one for values, and begins it again on a
// screen.
const lineEnds = "\n\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

// headLines splits the beginning of a file, which is cut if it is longer than limit, into lines. Of a cut
// file it drops the last line unless it is whole.
func headLines(data []byte, limit, lines int) []string {
	text, cut, ok := headText(data, limit)
	if !ok {
		return []string{"<binary>"}
	}
	return endLast(splitLines(strings.ReplaceAll(text, "\r", "\n"), lineEnds, lines), cut)
}

// shownLines is headLines as a screen shows the lines. It keeps the last state of a progress bar that is cut.
func shownLines(data []byte, limit, lines int) []string {
	text, cut, ok := headText(data, limit)
	if !ok {
		return []string{"<binary>"}
	}
	found := splitLines(text, lineEnds, lines)
	for i, line := range found {
		if strings.Contains(line, "\r") {
			found[i] = termtext.Screen(line)
			cut = cut && i < len(found)-1
		}
	}
	return endLast(found, cut)
}

// headText is the beginning of a file as text, up to limit bytes; ok is false if it is no text.
func headText(data []byte, limit int) (text string, cut, ok bool) {
	cut = len(data) > limit
	if cut {
		data = data[:limit-termtext.BegunRune(data[:limit])]
	}
	if !utf8.Valid(data) {
		return "", cut, false
	}
	return strings.ReplaceAll(string(data), "\r\n", "\n"), cut, true
}

// endLast ends the last line with a newline, or drops it if it is cut.
func endLast(lines []string, cut bool) []string {
	n := len(lines)
	switch {
	case n == 0 || strings.HasSuffix(lines[n-1], "\n"):
	case cut:
		lines = lines[:n-1]
	default:
		lines[n-1] += "\n"
	}
	return lines
}

// splitLines splits text behind each of the characters that end a line. It returns the first
// lines only, at most most.
func splitLines(text, ends string, most int) []string {
	var lines []string
	for text != "" && len(lines) < most {
		i := strings.IndexAny(text, ends)
		if i < 0 {
			return append(lines, text)
		}
		_, width := utf8.DecodeRuneInString(text[i:])
		lines = append(lines, text[:i+width])
		text = text[i+width:]
	}
	return lines
}
