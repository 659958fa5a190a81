package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// csvFlag adds --csv to a command that prints a list.
func csvFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "csv", false, "print comma-separated values, for spreadsheets and programs")
}

// read returns the fields of a listing. It refuses flags that contradict each other.
func (l *listing) read(c *cli) ([]string, error) {
	switch {
	case l.csv && c.asJSON:
		return nil, refusef("--csv and --json are two forms; choose one")
	case l.csv && l.watch:
		return nil, refusef("--watch shows a table; print CSV without it")
	case l.csv && l.uuidOnly:
		return nil, refusef("-u prints uuids alone; --csv -f uuid prints them as CSV")
	}
	return readFields(l.fields)
}

// printCSV prints rows as RFC 4180 has them, below their names. A missing value is an empty cell. Sizes are in bytes,
// durations in seconds, and times in ISO 8601.
func (c *cli) printCSV(names []string, rows []map[string]any) error {
	table := [][]string{names}
	for _, row := range rows {
		cells := make([]string, len(names))
		for i, name := range names {
			cells[i] = csvCell(name, row[name])
		}
		table = append(table, cells)
	}
	return c.writeCSV(table)
}

// writeCSV writes rows of cells. A file or a pipe gets the cells as they are.
func (c *cli) writeCSV(rows [][]string) error {
	if err := csv.NewWriter(contentsTo(c.Stdout)).WriteAll(rows); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func csvCell(name string, value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case float64:
		if slices.Contains([]string{"created", "started", "last_updated"}, name) {
			return codalab.Metadata{name: v}.Time(name).UTC().Format(time.RFC3339)
		}
	case []any, map[string]any, []string:
		if text, err := json.Marshal(v); err == nil {
			return string(text)
		}
	}
	return codalab.PythonStr(value)
}
