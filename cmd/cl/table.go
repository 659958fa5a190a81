package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// column is a column of a table.
type column struct {
	name string
	// right justifies it, as numbers are.
	right bool
}

// printTable prints rows under their columns' names and a line of dashes (bundle_cli.py:
// print_table).
func printTable(w io.Writer, columns []column, rows [][]string) error {
	head := make([]string, len(columns))
	width := make([]int, len(columns))
	for i, c := range columns {
		head[i] = c.name
	}
	rows = append([][]string{head}, rows...)
	total := 2 * (len(columns) - 1)
	for i := range columns {
		for _, row := range rows {
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
		total += width[i]
	}
	var out strings.Builder
	for n, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			space := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if columns[i].right {
				cells[i] = space + cell
			} else {
				cells[i] = cell + space
			}
		}
		out.WriteString(strings.Join(cells, "  ") + "\n")
		if n == 0 {
			out.WriteString(strings.Repeat("-", total) + "\n")
		}
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
