package preview

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// mostRows and mostColumns bound a table, longestCell the bytes of a text in it.
const (
	mostRows    = 500
	mostColumns = 64
	longestCell = 500
)

// table reads a table of values that commas or tabs separate. It reports false for a text that is none.
func table(text string, tabs, cut bool) (File, bool) {
	r := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	r.FieldsPerRecord = -1
	r.ReuseRecord = true
	if tabs {
		r.Comma = '\t'
	}
	f := File{Kind: Table}
	columns, more := 0, false
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) || err != nil && cut && r.InputOffset() >= int64(len(text)) { // a quote that goes on
			break
		}
		if err != nil {
			return File{}, false
		}
		if more = len(f.Rows) == mostRows; more {
			break
		}
		columns = max(columns, len(cells))
		if cells = shortCells(cells); f.Header == nil {
			f.Header = cells
		} else {
			f.Rows = append(f.Rows, cells)
		}
	}
	if len(f.Header) < 2 {
		return File{}, false
	}
	if n := len(f.Rows); cut && !more && n > 0 {
		f.Rows = f.Rows[:n-1] // it may be incomplete
	}
	f.Note = tableNote(len(f.Rows), columns, cut || more)
	return f, true
}

// tableNote is a sentence about the rows and columns that are not shown.
func tableNote(rows, columns int, more bool) string {
	var parts []string
	if more {
		parts = append(parts, "its first "+termtext.Count(rows, "row"))
	}
	if columns > mostColumns {
		parts = append(parts, fmt.Sprintf("%d of %s columns", mostColumns, termtext.Number(int64(columns))))
	}
	if len(parts) == 0 {
		return ""
	}
	note := strings.Join(parts, " and ") + " are shown."
	return strings.ToUpper(note[:1]) + note[1:]
}

// shortCells returns the first cells of a row, each with the beginning of its text.
func shortCells(cells []string) []string {
	short := make([]string, min(len(cells), mostColumns))
	for i := range short {
		short[i] = Shortened(cells[i])
	}
	return short
}

// Shortened returns a text, or the beginning of a long one.
func Shortened(text string) string {
	if len(text) <= longestCell {
		return strings.Clone(text) // of a cell, which shares the memory of its row
	}
	return strings.ToValidUTF8(text[:longestCell], "") + "…"
}
