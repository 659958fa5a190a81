package interpret

import (
	"path"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// column is a column of a table: its heading, the genpath of its values, and their format.
type column struct {
	name    string
	genpath string
	// post is nil if values are shown as they are.
	post *string
	// from is the schema that a directive added the column to; nil for other columns.
	from *string
}

// size is the approximate number of bytes of the column in an answer.
func (c *column) size() int64 {
	n := len(c.name) + len(c.genpath) + 100
	for _, text := range []*string{c.post, c.from} {
		if text != nil {
			n += len(*text)
		}
	}
	return int64(n)
}

// schema is a list of columns that directives can name.
type schema struct {
	columns []*column
}

// newColumn reads a column's words: its genpath; or its name and genpath; or these and a post-function
// (codalab/lib/worksheet_util.py: canonicalize_schema_item).
func newColumn(words []string, from *string) (*column, error) {
	switch len(words) {
	case 1:
		name := path.Base(words[0])
		if strings.HasSuffix(words[0], "/") || words[0] == "" {
			name = ""
		}
		return &column{name: name[strings.LastIndex(name, ":")+1:], genpath: words[0], from: from}, nil
	case 2:
		return &column{name: words[0], genpath: words[1], from: from}, nil
	case 3:
		return &column{name: words[0], genpath: words[1], post: &words[2], from: from}, nil
	}
	return nil, &UsageError{"Invalid number of arguments: " + codalab.PythonRepr(words)}
}

const defaultSchema = "default"

// builtinSchemas are the schemas that every worksheet has (codalab/lib/worksheet_util.py:
// get_default_schemas).
func builtinSchemas() map[string]*schema {
	single := map[string][]string{
		"uuid":        {"uuid[0:8]", "uuid", "[0:8]"},
		"name":        {"name"},
		"summary":     {"summary[0:1024]", "summary"},
		"data_size":   {"data_size", "data_size", "size"},
		"time":        {"time", "time", "duration"},
		"state":       {"state"},
		"description": {"description"},
		"created":     {"created", "created", "date"},
	}
	groups := map[string][]string{
		defaultSchema: {"uuid", "name", "summary", "data_size", "state", "description"},
		"program":     {"uuid", "name", "data_size", "description"},
		"dataset":     {"uuid", "name", "data_size", "description"},
		"make":        {"uuid", "name", "summary", "data_size", "state", "description"},
		"run":         {"uuid", "name", "summary", "data_size", "time", "state", "description"},
	}
	for name := range single {
		groups[name] = []string{name}
	}
	schemas := make(map[string]*schema, len(groups))
	for name, parts := range groups {
		s := &schema{}
		for _, part := range parts {
			c, _ := newColumn(single[part], nil) // one to three words
			s.columns = append(s.columns, c)
		}
		schemas[name] = s
	}
	return schemas
}

// columns are the columns of a table that names these schemas. A name that is no schema is a column
// itself: genpath, name:genpath or name:genpath:post-function.
func (b *builder) columns(names []string) ([]*column, error) {
	var columns []*column
	for _, name := range schemaNames(names) {
		if s, ok := b.schemas[name]; ok {
			columns = append(columns, s.columns...)
		} else {
			c, err := newColumn(strings.SplitN(name, ":", 3), nil)
			if err != nil {
				return nil, err
			}
			columns = append(columns, c)
		}
		if len(columns) > maxColumns {
			return nil, tooManyColumns()
		}
	}
	return columns, nil
}

func tooManyColumns() error { return usage("more than %d columns", maxColumns) }

// schemaNames are the schemas that a display directive names.
func schemaNames(names []string) []string {
	if len(names) == 0 {
		return []string{defaultSchema}
	}
	return names
}
