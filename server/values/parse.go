package values

import (
	"encoding/csv"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/server/interpret"
)

// kind is a kind of files with values; 0 for other files.
type kind int

const (
	document kind = iota + 1 // JSON, YAML or lines KEY<tab>VALUE
	lines                    // JSON lines
	table                    // comma-separated
)

// kindOf returns the kind of a file by its name.
func kindOf(name string) kind {
	switch strings.ToLower(path.Ext(name)) {
	case ".json", ".yaml", ".yml":
		return document
	case ".jsonl", ".ndjson":
		return lines
	case ".csv":
		return table
	}
	if name == "stats" { // as in CodaLab's guides
		return document
	}
	return 0
}

// parseDocument reads a file as worksheets do.
func parseDocument(text string) any {
	if !utf8.ValidString(text) {
		return nil
	}
	return interpret.Contents(text)
}

// lastLine returns the last line of a file of which end is the end; empty if the line is longer than that.
func lastLine(end string, size int64) string {
	end = strings.TrimRight(end, "\r\n \t")
	i := strings.LastIndexByte(end, '\n')
	if i < 0 && size > maxLine {
		return ""
	}
	return end[i+1:]
}

// parseLine reads a line of JSON.
func parseLine(line string) any {
	if !strings.HasPrefix(strings.TrimSpace(line), "{") {
		return nil
	}
	return parseDocument(line)
}

// parseRow reads the last line of a table whose first line names the columns. A table without rows has no values.
func parseRow(head, last string) any {
	first, _, whole := strings.Cut(head, "\n")
	if !whole || first == last || strings.TrimRight(first, "\r") == last {
		return nil
	}
	names, cells := record(first), record(last)
	if len(names) != len(cells) {
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

// record reads one line of a table; nil if it is none.
func record(line string) []string {
	r := csv.NewReader(strings.NewReader(line))
	r.TrimLeadingSpace = true
	cells, err := r.Read()
	if err != nil {
		return nil
	}
	return cells
}

func sortedKeys(dict map[string]any) []string { return slices.Sorted(maps.Keys(dict)) }

// isText reports whether both kinds of databases can hold a text.
func isText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }
