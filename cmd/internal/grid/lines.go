package grid

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Format is the format of a file of rows.
type Format int

// The formats of files of rows.
const (
	// Plain files have a value in each line.
	Plain Format = iota
	// CSV and TSV files have values separated by commas or tabs.
	CSV
	TSV
	// JSONL files have an object of JSON in each line.
	JSONL
)

// maxLine bounds a line of a file, in bytes.
const maxLine = 1 << 20

// ReadRows reads a table from a file. Without names, they are in the first line of a CSV
// or TSV file; a Plain file has the setting line. A JSONL file names them itself. Empty lines count for nothing. The
// text is bounded by the most members that a grid may have.
func ReadRows(from io.Reader, format Format, names []string) (t Table, err error) {
	lines, err := readLines(from)
	if err != nil {
		return t, err
	}
	switch {
	case format == JSONL:
		t.Names, t.Rows, err = readObjects(lines)
	case format != Plain:
		t.Names, t.Rows, err = readTable(lines, format, names)
	case len(names) > 1:
		t.Names, t.Rows, err = readTable(lines, separatorOf(lines), names)
	default:
		t.Names = names
		if len(names) == 0 {
			t.Names = []string{"line"}
		}
		for _, l := range lines {
			t.Rows = append(t.Rows, []string{l})
		}
	}
	return t, err
}

// separatorOf tells the format of lines with several values: TSV if the first one has a tab.
func separatorOf(lines []string) Format {
	if len(lines) > 0 && strings.Contains(lines[0], "\t") {
		return TSV
	}
	return CSV
}

func readLines(from io.Reader) ([]string, error) {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, maxLine)
	var lines []string
	for n := 1; scanner.Scan(); n++ {
		line := strings.TrimSuffix(scanner.Text(), "\r")
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		if lines = append(lines, line); len(lines) > MaxMembers+1 {
			return nil, fmt.Errorf("the file has more than %d lines, and a sweep may have %d members", MaxMembers, MaxMembers)
		}
	}
	err := scanner.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d has more than %d bytes", len(lines)+1, maxLine)
	}
	if err != nil {
		return nil, fmt.Errorf("read lines: %w", err)
	}
	return lines, nil
}

func readTable(lines []string, format Format, names []string) ([]string, [][]string, error) {
	reader := csv.NewReader(strings.NewReader(strings.Join(lines, "\n")))
	if format == TSV {
		reader.Comma = '\t'
		reader.LazyQuotes = true
	}
	list, err := reader.ReadAll()
	if err != nil {
		return nil, nil, fmt.Errorf("read table: %w", err)
	}
	if len(names) > 0 || len(list) == 0 {
		return names, list, nil
	}
	for i, name := range list[0] {
		list[0][i] = strings.TrimSpace(name)
	}
	return list[0], list[1:], nil
}

// readObjects reads objects of JSON. Those after the first one have the same keys.
func readObjects(lines []string) (names []string, list [][]string, err error) {
	for i, line := range lines {
		keys, values, err := readObject(line)
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if i == 0 {
			names = keys
		}
		row := make([]string, len(names))
		for n, name := range names {
			value, ok := values[name]
			if !ok || len(values) != len(names) {
				return nil, nil, fmt.Errorf("line %d has other settings than line 1: %s", i+1, strings.Join(names, ", "))
			}
			row[n] = value
		}
		list = append(list, row)
	}
	return names, list, nil
}

// readObject reads an object of JSON, and returns its keys in their order.
func readObject(line string) (keys []string, values map[string]string, err error) {
	decoder := json.NewDecoder(strings.NewReader(line))
	notOne := errors.New(`it is no object of JSON, such as {"lr": 0.1}`)
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil, nil, notOne
	}
	values = map[string]string{}
	for decoder.More() {
		key, err := decoder.Token()
		name, ok := key.(string)
		var raw json.RawMessage
		if err != nil || !ok || decoder.Decode(&raw) != nil {
			return nil, nil, notOne
		}
		if _, twice := values[name]; twice {
			return nil, nil, fmt.Errorf("it has the setting %s twice", name)
		}
		keys, values[name] = append(keys, name), plainValue(raw)
	}
	if _, err := decoder.Token(); err != nil || decoder.More() {
		return nil, nil, notOne
	}
	return keys, values, nil
}

// plainValue writes a value of JSON as a setting: a text without its quotes, and all else as it is.
func plainValue(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return string(raw)
	}
	return compact.String()
}
