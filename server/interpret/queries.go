package interpret

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// FileGenpaths returns the values of the queries, in their order, ready for JSON: the "data" of POST
// /interpret/file-genpaths (codalab/rest/interpret.py: interpret_file_genpaths). A file or key that does
// not exist gives nil. The error is a *UsageError for a query that is no file's, or that asks for too
// much; or it is that of ctx or of Read.
func (in Interpreter) FileGenpaths(ctx context.Context, queries []codalab.FileQuery) ([]any, error) {
	f := in.files()
	values := make([]any, len(queries))
	for i, q := range queries {
		value, err := f.value(ctx, target{uuid: q.BundleUUID, genpath: q.Genpath, post: q.Post})
		if err != nil {
			return nil, err
		}
		values[i] = value
	}
	return values, nil
}

// TableContents returns the rows of a table, ready for JSON, with a value in the place of each cell that
// is a list [bundle uuid, genpath, post-function]: the "contents" of POST
// /interpret/genpath-table-contents (codalab/rest/interpret.py: interpret_genpath_table_contents). Its
// errors are those of FileGenpaths.
func (in Interpreter) TableContents(ctx context.Context, rows []map[string]json.RawMessage) ([]map[string]any, error) {
	f := in.files()
	contents := make([]map[string]any, len(rows))
	for i, row := range rows {
		contents[i] = make(map[string]any, len(row))
		for name, cell := range row {
			t, ok, err := parseTarget(cell)
			switch {
			case err != nil:
				return nil, err
			case !ok:
				contents[i][name] = cell
				continue
			}
			if contents[i][name], err = f.value(ctx, t); err != nil {
				return nil, err
			}
		}
	}
	return contents, nil
}

// parseTarget reads a cell. It reports whether the cell is a file's genpath: every list of three is.
func parseTarget(cell json.RawMessage) (t target, ok bool, err error) {
	var parts []json.RawMessage
	isList := bytes.HasPrefix(bytes.TrimSpace(cell), []byte("[")) && json.Unmarshal(cell, &parts) == nil
	if !isList || len(parts) != 3 {
		return target{}, false, nil
	}
	for i, to := range []any{&t.uuid, &t.genpath, &t.post} {
		if json.Unmarshal(parts[i], to) != nil {
			return target{}, false, usage("a cell to resolve must be a list of bundle uuid, genpath and post-function")
		}
	}
	return t, true, nil
}
