package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/rows"
)

// rowField is a field of a file of rows, such as /log.jsonl:-1:loss.
type rowField struct{ path, key string }

// parseRowField reads the name of a field in the last row of a file; false for other fields.
func parseRowField(field string) (rowField, bool) {
	file, inside, _ := strings.Cut(field, ":")
	key, ok := strings.CutPrefix(inside, "-1:")
	return rowField{strings.TrimPrefix(file, "/"), key}, ok && rows.KindOf(file) != 0
}

// lastRow reads the last row of a file; nil if there is none.
func (w *workspace) lastRow(ctx context.Context, target codalab.Target) (map[string]any, error) {
	info, err := w.ContentsInfo(ctx, target, 0)
	if isAbsent(err) || err == nil && info.Type != codalab.TargetFile {
		return nil, nil //nolint:nilnil // a file that is not there has no row
	}
	if err != nil {
		return nil, err
	}
	if info.Resolved != nil {
		target = *info.Resolved
	}
	kind, head := rows.KindOf(target.Subpath), ""
	if kind == rows.CSV {
		if head, err = w.section(ctx, target, 0, min(info.Size, rows.MaxLine)); err != nil {
			return nil, err
		}
	}
	from := max(0, info.Size-rows.MaxLine)
	end, err := w.section(ctx, target, from, info.Size-from)
	return rows.Last(kind, head, end, info.Size), err
}

// section reads a section of a file.
func (w *workspace) section(ctx context.Context, target codalab.Target, offset, length int64) (string, error) {
	if length <= 0 {
		return "", nil
	}
	in, err := w.OpenContents(ctx, target, &client.Range{Offset: offset, Length: length})
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(in, length))
	if err = errors.Join(err, in.Close()); err != nil {
		return "", fmt.Errorf("read %s: %w", target, err)
	}
	return string(data), nil
}

// isAbsent reports whether a file is not there, or may not be read: then it has no values.
func isAbsent(err error) bool {
	return codalab.IsStatus(err, 404) || codalab.IsStatus(err, 403)
}
