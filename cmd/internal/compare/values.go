package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/rows"
)

// Value is a value in two files; nil where a file lacks it.
type Value struct {
	// Name is the path of keys in the file, as test/error; -1:loss is of the last row, and "rows" the number of rows.
	Name string `json:"name"`
	A    any    `json:"a"`
	B    any    `json:"b"`
}

// Change is B minus A; false unless both are numbers with a finite difference.
func (v Value) Change() (float64, bool) {
	_, a, _ := codalab.ScalarValue(v.A)
	_, b, _ := codalab.ScalarValue(v.B)
	if a == nil || b == nil {
		return 0, false
	}
	n := *b - *a
	return n, !math.IsInf(n, 0)
}

// Values returns the values that differ in two files of one name, in the order of their names; false unless both are files
// of values: JSON, JSON lines, or a table with commas. Files may differ although no value does, as in a row before the last.
func Values(name string, a, b []byte) ([]Value, bool) {
	of := documentValues
	if kind := rows.KindOf(name); kind != 0 {
		of = func(data []byte) map[string]any { return rowValues(kind, data) }
	} else if !strings.EqualFold(path.Ext(name), ".json") {
		return nil, false
	}
	inA, inB := of(a), of(b)
	if inA == nil || inB == nil {
		return nil, false
	}
	all := maps.Clone(inA)
	maps.Copy(all, inB)
	var values []Value
	for _, key := range sortedKeys(all) {
		if v := (Value{key, inA[key], inB[key]}); !equal(v.A, v.B) {
			values = append(values, v)
		}
	}
	return values, true
}

// equal reports whether two values are the same: 1 and 1.0 are, and so are a number and its text in a table.
func equal(a, b any) bool {
	textA, numberA, okA := codalab.ScalarValue(a)
	textB, numberB, okB := codalab.ScalarValue(b)
	if numberA != nil && numberB != nil {
		same := *numberA == *numberB
		if same && math.Abs(*numberA) >= exactBelow && isWhole(textA) && isWhole(textB) {
			return textA == textB
		}
		return same
	}
	return okA == okB && textA == textB
}

// exactBelow is the begin of the whole numbers of which several are one float64.
const exactBelow = 1 << 53

// isWhole reports whether a number's text is a whole number without a fraction and an exponent, as ids and times in nanoseconds.
func isWhole(text string) bool {
	return strings.Trim(strings.TrimPrefix(text, "-"), "0123456789") == ""
}

// documentValues returns the values of a JSON document; nil if it is none.
func documentValues(data []byte) map[string]any {
	if !utf8.Valid(data) {
		return nil
	}
	value, err := codalab.DecodePython(data)
	if err != nil {
		return nil
	}
	values := map[string]any{}
	addValues(values, "", value)
	return values
}

// addValues adds the values in a value. The elements of a list have their positions as keys.
func addValues(to map[string]any, at string, value any) {
	below := func(key string) string { return strings.TrimPrefix(at+"/"+key, "/") }
	switch v := value.(type) {
	case map[string]any:
		for key, one := range v {
			addValues(to, below(key), one)
		}
	case []any:
		for i, one := range v {
			addValues(to, below(strconv.Itoa(i)), one)
		}
	case nil:
		to[at] = codalab.None
	default:
		to[at] = v
	}
}

// rowValues returns the values of the last row of a file, and the number of its rows; nil if it has none.
func rowValues(kind rows.Kind, data []byte) map[string]any {
	var last map[string]any
	n := 0
	if rows.Each(bytes.NewReader(data), kind, func(row map[string]any) { last, n = row, n+1 }) != nil || n == 0 {
		return nil
	}
	inRow := map[string]any{}
	addValues(inRow, "", last)
	values := map[string]any{"rows": json.Number(strconv.Itoa(n))}
	for key, value := range inRow {
		values["-1:"+key] = value
	}
	return values
}

// IsText reports whether a file is a text whose lines can be shown.
func IsText(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 }

// Text returns the lines that differ in two texts, in the unified form of diff(1).
func Text(nameA, nameB, a, b string) (string, error) {
	text, err := udiff.ToUnified(nameA, nameB, a, udiff.Lines(a, b), udiff.DefaultContextLines)
	if err != nil {
		return "", fmt.Errorf("compare lines: %w", err)
	}
	return text, nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
