package values

import (
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/internal/rows"
	"github.com/cl-slurm/cl-slurm/server/interpret"
)

// kind is a kind of files with values; 0 for other files.
type kind int

const (
	document kind = iota + 1 // JSON, YAML or lines KEY<tab>VALUE
	table                    // package rows reads it
)

// kindOf returns the kind of a file by its name.
func kindOf(name string) kind {
	switch strings.ToLower(path.Ext(name)) {
	case ".json", ".yaml", ".yml":
		return document
	}
	switch {
	case name == "stats": // as in CodaLab's guides
		return document
	case rows.KindOf(name) != 0:
		return table
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

func sortedKeys(dict map[string]any) []string { return slices.Sorted(maps.Keys(dict)) }

// isText reports whether both kinds of databases can hold a text.
func isText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }
