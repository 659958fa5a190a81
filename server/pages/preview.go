package pages

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"path"
	"strings"
	"unicode/utf8"
)

// mostRows and mostCells bound a table, longestCell a text in it.
const (
	mostRows    = 500
	mostCells   = 64
	longestCell = 500
)

// preview returns a file as its page shows it. begin is its beginning, of at most mostPreview bytes.
func preview(subpath, address string, size int64, begin []byte) *file {
	f := &file{Path: subpath, Blob: address, Size: size, Cut: size > int64(len(begin))}
	ext := strings.ToLower(path.Ext(subpath))
	switch ext {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".svg", ".bmp":
		f.Kind = "image" // browsers run no scripts of an image, also of an SVG one
		return f
	}
	if f.Cut { // the last character may be incomplete
		for range utf8.UTFMax - 1 {
			if r, n := utf8.DecodeLastRune(begin); r != utf8.RuneError || n != 1 {
				break
			}
			begin = begin[:len(begin)-1]
		}
	}
	if !utf8.Valid(begin) || bytes.ContainsRune(begin, 0) {
		f.Kind = "other"
		return f
	}
	f.Kind, f.Text = "text", string(begin)
	separator := map[string]rune{".csv": ',', ".tsv": '\t'}[ext]
	if separator != 0 {
		f.readTable(separator)
	}
	return f
}

// readTable makes a table of the text, if it is one.
func (f *file) readTable(separator rune) {
	r := csv.NewReader(strings.NewReader(f.Text))
	r.Comma, r.LazyQuotes, r.FieldsPerRecord = separator, true, -1
	header, err := r.Read()
	if err != nil || len(header) < 2 || len(header) > mostCells {
		return
	}
	var rows [][]string
	for len(rows) < mostRows {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return
		}
		cells = cells[:min(len(cells), mostCells)]
		for i := range cells {
			cells[i] = shortened(cells[i])
		}
		rows = append(rows, cells)
	}
	if f.Cut && len(rows) > 0 && len(rows) < mostRows {
		rows = rows[:len(rows)-1] // it may be incomplete
	}
	f.Cut = f.Cut || len(rows) == mostRows
	f.Kind, f.Header, f.Rows, f.Text = "table", header, rows, ""
}

func shortened(text string) string {
	if len(text) <= longestCell {
		return text
	}
	return strings.ToValidUTF8(text[:longestCell], "") + "…"
}
