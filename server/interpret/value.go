package interpret

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The values of genpaths are nil, bool, string, json.Number for integers of any length,
// codalab.PythonFloat, []any and map[string]any. CodaLab's own server is a Python program, and its users
// see Python's texts of values.

func integer(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

// normal turns decoded JSON, and the lists that Go code builds, into values.
func normal(value any) any {
	switch v := value.(type) {
	case json.Number, float64:
		return codalab.PythonNumber(v)
	case int:
		return integer(int64(v))
	case int64:
		return integer(v)
	case []string:
		list := make([]any, len(v))
		for i, text := range v {
			list[i] = text
		}
		return list
	case []any:
		list := make([]any, len(v))
		for i, element := range v {
			list[i] = normal(element)
		}
		return list
	case map[string]any:
		dict := make(map[string]any, len(v))
		for key, element := range v {
			dict[key] = normal(element)
		}
		return dict
	}
	return value
}

// toFloat is Python's float().
func toFloat(value any) (float64, bool) {
	var text string
	switch v := value.(type) {
	case codalab.PythonFloat:
		return float64(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case json.Number:
		text = v.String()
	case string:
		text = strings.TrimSpace(v)
		if strings.ContainsAny(text, "xXpP_") { // only Go has these
			return 0, false
		}
	default:
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil || math.IsInf(f, 0)
}

// size is the approximate number of bytes of a value in an answer.
func size(value any) int64 {
	switch v := value.(type) {
	case string:
		return int64(len(v)) + 2
	case json.Number:
		return int64(len(v))
	case []any:
		total := int64(2)
		for _, element := range v {
			total += size(element) + 1
		}
		return total
	case map[string]any:
		total := int64(2)
		for key, element := range v {
			total += int64(len(key)) + size(element) + 4
		}
		return total
	}
	return 8
}
