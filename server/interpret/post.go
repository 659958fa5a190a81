package interpret

import (
	"maps"
	"regexp"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// post is a post-function: functions that are applied to a value one after another
// (codalab/lib/worksheet_util.py: apply_func).
type post []step

// step is one function. With more false, result is the final value, and the steps after it do not run.
type step func(value any) (result any, more bool)

// ApplyPost applies a post-function to a json.Number or a codalab.PythonFloat.
func ApplyPost(spec string, number any) any { return parsePost(spec).apply(number) }

// parsePost reads a post-function. It cannot fail: an unknown function replaces the value by a
// message.
func parsePost(spec string) post {
	parts := strings.Split(spec, " | ")
	if len(parts) > maxSteps || len(spec) > maxPost {
		return post{final("<invalid function: too long>")}
	}
	steps := make(post, len(parts))
	for i, part := range parts {
		steps[i] = parseStep(part)
	}
	return steps
}

// apply applies the functions to a value. A function that fails returns its input.
func (p post) apply(value any) any {
	for _, step := range p {
		result, more := step(value)
		if size(result) > max(maxText, size(value)) {
			return value
		}
		if !more {
			return result
		}
		value = result
	}
	return value
}

func parseStep(text string) step {
	word, arguments, _ := strings.Cut(text, " ")
	switch {
	case text == "str":
		return func(value any) (any, bool) { return codalab.PythonStr(value), true }
	case text == "date":
		return ofNumber(dateText)
	case text == "duration":
		return ofNumber(durationText)
	case text == "size":
		return ofNumber(sizeText)
	case strings.HasPrefix(text, "%"):
		p, ok := parsePrintf(text)
		return ofNumber(func(f float64) (any, bool) {
			if !ok {
				return nil, false
			}
			return p.format(f)
		})
	case strings.HasPrefix(text, "s/"):
		return parseSubstitution(text)
	case strings.HasPrefix(text, "["):
		return parseSlice(text)
	case word == "add" && word != text:
		return parseAdd(arguments)
	case word == "key" && word != text:
		key, _, _ := strings.Cut(arguments, " ")
		return func(value any) (any, bool) { return map[string]any{key: value}, true }
	}
	return final("<invalid function: " + text + ">")
}

func final(text string) step {
	return func(any) (any, bool) { return text, false }
}

// fail is the result of a step whose function Python could not apply.
func fail(value any) (any, bool) { return value, false }

// ofNumber makes a step of a function of a number. It keeps a missing value.
func ofNumber(f func(float64) (any, bool)) step {
	return func(value any) (any, bool) {
		if value == nil {
			return nil, true
		}
		n, ok := toFloat(value)
		if !ok {
			return fail(value)
		}
		result, ok := f(n)
		if !ok {
			return fail(value)
		}
		return result, true
	}
}

// parseAdd reads the arguments of "add key text", which adds a key to a dictionary.
func parseAdd(arguments string) step {
	key, text, ok := strings.Cut(arguments, " ")
	ok = ok && !strings.Contains(text, " ")
	return func(value any) (any, bool) {
		dict, isDict := value.(map[string]any)
		switch {
		case !isDict:
			return "arg (<class '" + codalab.PythonType(value) + "'>) not a dictionary", false
		case !ok:
			return fail(value)
		}
		larger := maps.Clone(dict)
		larger[key] = text
		return larger, true
	}
}

var sliceForm = regexp.MustCompile(`^\[(.*):(.*)\]`)

// parseSlice reads "[a:b]", which cuts a part out of a text or a list, as in Python: either end may be
// missing, or negative to count from the end.
func parseSlice(text string) step {
	m := sliceForm.FindStringSubmatch(text)
	if m == nil {
		return final("<invalid function: " + text + ">")
	}
	start, okStart := sliceEnd(m[1])
	end, okEnd := sliceEnd(m[2])
	return func(value any) (any, bool) {
		if !okStart || !okEnd {
			return fail(value)
		}
		switch v := value.(type) {
		case string:
			runes := []rune(v)
			from, to := bounds(start, end, len(runes))
			return string(runes[from:to]), true
		case []any:
			from, to := bounds(start, end, len(v))
			return v[from:to], true
		}
		return fail(value)
	}
}

// sliceEnd reads one end of a slice; nil if it is missing.
func sliceEnd(text string) (*int, bool) {
	if text == "" {
		return nil, true
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	return &n, err == nil
}

// bounds turns the ends of a slice into 0 ≤ from ≤ to ≤ length.
func bounds(start, end *int, length int) (from, to int) {
	place := func(n *int, missing int) int {
		switch {
		case n == nil:
			return missing
		case *n < 0:
			return max(*n+length, 0)
		}
		return min(*n, length)
	}
	from, to = place(start, 0), place(end, length)
	return from, max(from, to)
}

// posts keeps post-functions for the next cells that have them.
type posts map[string]post

// apply applies a post-function, nil for none, to a value. For a file that is not read yet it only
// records the post-function.
func (p posts) apply(spec *string, value any) any {
	if t, ok := value.(target); ok {
		t.post = spec
		return t
	}
	if spec == nil {
		return value
	}
	parsed, ok := p[*spec]
	if !ok {
		if len(p) >= maxPosts {
			clear(p)
		}
		parsed = parsePost(*spec)
		p[*spec] = parsed
	}
	return parsed.apply(value)
}

// MarshalJSON writes the target as clients send it back for reading.
func (t target) MarshalJSON() ([]byte, error) {
	return encode([]any{t.uuid, t.genpath, t.post})
}
