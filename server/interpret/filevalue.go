package interpret

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// value returns the value that a genpath of a file names, after its post-function; nil if the file or
// the key does not exist (codalab/rest/interpret.py: interpret_file_genpath). For a file that the user
// may not read it returns the list ["Forbidden"].
func (f *files) value(ctx context.Context, t target) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, ok := strings.CutPrefix(t.genpath, "/")
	if !ok {
		return nil, notFile(t.genpath)
	}
	path, inside, hasKey := strings.Cut(path, ":")
	value, err := f.contents(ctx, fileKey{t.uuid, path})
	if errors.Is(err, fs.ErrPermission) {
		return []any{"Forbidden"}, nil
	}
	if err != nil {
		return nil, err
	}
	if hasKey {
		value = lookUp(value, inside)
	}
	value = f.posts.apply(t.post, value)
	return value, f.countBytes(size(value))
}

// contents is a file's contents as a value; nil if there is no file.
func (f *files) contents(ctx context.Context, key fileKey) (any, error) {
	if value, ok := f.values[key]; ok {
		return value, nil
	}
	lines, err := f.head(ctx, key, maxHeadLines)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDirectory):
		f.values[key] = nil
		return nil, nil
	case err != nil:
		return nil, err
	}
	value := parseFile(lines)
	if n := int(length(lines)); f.cached+n <= maxCached {
		f.cached += n
		f.values[key] = value
	}
	return value, nil
}

// parseFile reads a file as a tab-separated one if all lines have a tab, as JSON, as YAML, or else as
// plain text.
func parseFile(lines []string) any {
	if len(lines) == 0 {
		return ""
	}
	if dict, ok := parseTabs(lines); ok {
		return dict
	}
	text := strings.Join(lines, "")
	if value, err := codalab.DecodeExact([]byte(text)); err == nil {
		return normal(value)
	}
	if value, err := parseYAML(text); err == nil {
		return value
	}
	return text
}

func parseTabs(lines []string) (map[string]any, bool) {
	dict := map[string]any{}
	for _, line := range lines {
		if !strings.Contains(line, "\t") {
			return nil, false
		}
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			dict[key] = value
		}
	}
	return dict, true
}

// lookUp follows the keys of a path, separated by slashes, into dictionaries and lists.
func lookUp(value any, path string) any {
	for key := range strings.SplitSeq(path, "/") {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			i, err := strconv.Atoi(strings.TrimSpace(key))
			if i < 0 {
				i += len(v)
			}
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

// Contents reads the text of a small file as worksheets do: as lines KEY<tab>VALUE, JSON or YAML. Numbers, dictionaries
// and lists are those of codalab.DecodeExact; a plain text is the text itself.
func Contents(text string) any {
	return parseFile(headLines([]byte(text), len(text)+1, maxHeadLines))
}
