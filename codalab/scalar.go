package codalab

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// decimal is a number as JSON and tables write it.
var decimal = lazyregexp.New(`^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$`)

// ScalarValue returns a value of a file as a text, and as a number if it is one or is the text of one; false for lists,
// dictionaries and nothing. NaN and infinities have no number, since nothing can be compared with them in earnest.
func ScalarValue(value any) (text string, number *float64, ok bool) {
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v), nil, true
	case string:
		text = v
	case json.Number:
		text = v.String()
	case float64:
		text = PythonFloat(v).String()
	case PythonFloat:
		text = v.String()
	default:
		return "", nil, false
	}
	return text, Number(text), true
}

// Number returns the finite number that a text is; nil if it is none.
func Number(text string) *float64 {
	text = strings.TrimSpace(text)
	if !decimal().MatchString(text) {
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(n, 0) {
		return nil
	}
	return &n
}
