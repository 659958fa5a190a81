package interpret

import (
	"errors"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// defaultMaxLines is the number of lines of a file that a block shows by default
// (codalab/lib/worksheet_util.py: DEFAULT_CONTENTS_MAX_LINES).
const defaultMaxLines = 10

// errNoMode is the error of a display directive without words. The original has no message for it.
var errNoMode = errors.New("display directive without a mode")

// flushBundles shows the collected bundles in the mode of the display directive
// (codalab/lib/worksheet_util.py: flush_bundles).
func (b *builder) flushBundles() error {
	first := b.firstBundle
	b.firstBundle = -1
	if len(b.bundles) == 0 {
		return nil
	}
	if len(b.display) == 0 {
		return errNoMode
	}
	mode, arguments := b.display[0], b.display[1:]
	var err error
	switch mode {
	case "hidden":
	case "contents", "image":
		for _, e := range b.bundles {
			if err = b.showFile(e, mode, arguments); err != nil {
				return err
			}
		}
	case "record":
		err = b.showRecords(arguments, first)
	case "table":
		err = b.showTable(arguments, first)
	case "graph":
		err = b.showGraph(arguments)
	default:
		err = usage("Unknown display mode: %s", mode)
	}
	if err == nil {
		b.bundles = nil
	}
	return err
}

// fileArguments reads the arguments of a directive that shows a file: its genpath and properties.
func fileArguments(mode string, arguments []string) (path string, words map[string]string, err error) {
	if len(arguments) == 0 {
		return "", nil, usage("Expected '%% display %s (genpath)', but got '%% display %s'", mode, mode)
	}
	path, ok := strings.CutPrefix(arguments[0], "/")
	if !ok {
		return "", nil, notFile(arguments[0])
	}
	words, err = properties(arguments[1:])
	return path, words, err
}

func notFile(genpath string) error { return usage("Not file genpath: %s", genpath) }

func maxLines(words map[string]string) (int, error) {
	text, ok := words["maxlines"]
	if !ok {
		return defaultMaxLines, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, usage("maxlines must be integer")
	}
	return n, nil
}

func (b *builder) showFile(e entry, mode string, arguments []string) error {
	if e.bundle == nil {
		b.append(newError("ERROR: cannot access bundle"))
		return nil
	}
	path, words, err := fileArguments(mode, arguments)
	if err != nil {
		return err
	}
	file := fileBlock{
		head: head{Mode: mode + "_block"}, bundlesSpec: newSpec(e), Status: status{Code: codeUnknown},
		TargetGenpath: path, uuid: e.uuid,
	}
	if mode == "image" {
		b.append(&imageBlock{fileBlock: file, Width: pixels(words["width"]), Height: pixels(words["height"])})
		return nil
	}
	lines, err := maxLines(words)
	if err != nil {
		return err
	}
	b.append(&contentsBlock{fileBlock: file, MaxLines: lines})
	return nil
}

// pixels reads a length; nil if it is no whole number.
func pixels(text string) *int {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return nil
	}
	return &n
}

// cell is a bundle's value in a column.
func (b *builder) cell(e entry, c *column) (any, error) {
	value := b.posts.apply(c.post, e.value(c.genpath))
	return value, b.countBytes(size(value) + int64(len(c.name)))
}

func (b *builder) showRecords(arguments []string, first int) error {
	columns, err := b.columns(arguments)
	if err != nil {
		return err
	}
	for _, e := range b.bundles {
		if err := b.stopped(); err != nil {
			return err
		}
		rows := []map[string]any{}
		for _, c := range columns {
			row := map[string]any{"key": c.name + ":"}
			value, err := b.cell(e, c)
			if err != nil {
				return err
			}
			if value != nil {
				row["value"] = value
			}
			rows = append(rows, row)
		}
		b.append(&tableBlock{
			head: head{Mode: "record_block"}, bundlesSpec: newSpec(e), Status: status{Code: codeUnknown},
			Header: []string{"key", "value"}, Rows: rows, SortKeys: []*int64{e.sortKey}, FirstIndex: first,
			UsingSchemas: schemaNames(arguments),
		})
	}
	return nil
}

func (b *builder) showTable(arguments []string, first int) error {
	columns, err := b.columns(arguments)
	if err != nil {
		return err
	}
	table := &tableBlock{
		head: head{Mode: "table_block"}, bundlesSpec: newSpec(b.bundles...), Status: status{Code: codeUnknown},
		Header: []string{}, Rows: []map[string]any{}, FirstIndex: first, UsingSchemas: schemaNames(arguments),
	}
	for _, c := range columns {
		table.Header = append(table.Header, c.name)
	}
	for i, e := range b.bundles {
		if err := b.stopped(); err != nil {
			return err
		}
		e.invalid = e.bundle == nil
		table.BundleInfos[i].invalid = e.invalid
		row := make(map[string]any, len(columns))
		for _, c := range columns {
			if row[c.name], err = b.cell(e, c); err != nil {
				return err
			}
		}
		table.Rows = append(table.Rows, row)
		table.SortKeys = append(table.SortKeys, e.sortKey)
	}
	b.append(table)
	return nil
}

func (b *builder) showGraph(arguments []string) error {
	path, words, err := fileArguments("graph", arguments)
	if err != nil {
		return err
	}
	lines, err := maxLines(words)
	if err != nil {
		return err
	}
	name, ok := words["display_name"]
	if !ok {
		name = "name"
	}
	graph := &graphBlock{head: head{Mode: "graph_block"}, bundlesSpec: newSpec(b.bundles[0]), MaxLines: lines}
	for _, e := range b.bundles {
		shown := e.value(name)
		if shown != nil {
			shown = codalab.PythonStr(shown)
		}
		if err := b.countBytes(size(shown) + int64(len(path)) + 100); err != nil {
			return err
		}
		graph.Trajectories = append(graph.Trajectories, &trajectory{BundleUUID: e.uuid, DisplayName: shown, TargetGenpath: path})
	}
	if text, ok := words["xlabel"]; ok {
		graph.XLabel = &text
	}
	if text, ok := words["ylabel"]; ok {
		graph.YLabel = &text
	}
	b.append(graph)
	return nil
}
