package interpret

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// The values of genpaths are nil, bool, string, json.Number for integers of any length, float, []any and
// map[string]any. CodaLab's own server is a Python program, and its users see Python's texts of values.

// float is a floating-point number that is written as Python writes it: 4.0, 1e-05.
type float float64

// MarshalJSON writes the number, or its name as a string if it is none that JSON has.
func (f float) MarshalJSON() ([]byte, error) {
	text := f.String()
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		text = strconv.Quote(text)
	}
	return []byte(text), nil
}

// String is the shortest text that gives the same number.
func (f float) String() string {
	x := float64(f)
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 0):
		return strings.Trim(strings.ToLower(strconv.FormatFloat(x, 'f', -1, 64)), "+")
	}
	text := strconv.FormatFloat(x, 'e', -1, 64)
	_, digits, _ := strings.Cut(text, "e")
	if exponent, err := strconv.Atoi(digits); err != nil || exponent < -4 || exponent >= 16 {
		return text
	}
	text = strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func integer(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

// wholeOrFloat converts a number that JSON decoding has made a float64.
func wholeOrFloat(f float64) any {
	const exact = 1 << 53
	if f == math.Trunc(f) && math.Abs(f) <= exact {
		return integer(int64(f))
	}
	return float(f)
}

// number reads a JSON number as Python does: one with a fraction or an exponent is a float.
func number(n json.Number) any {
	if strings.ContainsAny(n.String(), ".eE") {
		f, _ := strconv.ParseFloat(n.String(), 64) // infinite if it is too large, as in Python
		return float(f)
	}
	return n
}

// normal turns decoded JSON, and the lists that Go code builds, into values.
func normal(value any) any {
	switch v := value.(type) {
	case json.Number:
		return number(v)
	case float64:
		return wholeOrFloat(v)
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
	case float:
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

// toText is Python's str().
func toText(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	var out strings.Builder
	writeRepr(&out, value)
	return out.String()
}

// repr is Python's repr() of a list of texts.
func repr(texts []string) string { return toText(normal(texts)) }

func writeRepr(out *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		out.WriteString("None")
	case bool:
		out.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case string:
		writeQuoted(out, v)
	case json.Number:
		out.WriteString(v.String())
	case float:
		out.WriteString(v.String())
	case []any:
		out.WriteByte('[')
		for i, element := range v {
			if i > 0 {
				out.WriteString(", ")
			}
			writeRepr(out, element)
		}
		out.WriteByte(']')
	case map[string]any:
		out.WriteByte('{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				out.WriteString(", ")
			}
			writeQuoted(out, key)
			out.WriteString(": ")
			writeRepr(out, v[key])
		}
		out.WriteByte('}')
	}
}

// writeQuoted is Python's repr() of a text.
func writeQuoted(out *strings.Builder, text string) {
	quote := '\''
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		quote = '"'
	}
	out.WriteRune(quote)
	for _, c := range text {
		switch {
		case c == quote || c == '\\':
			out.WriteByte('\\')
			out.WriteRune(c)
		case unicode.IsPrint(c):
			out.WriteRune(c)
		default:
			escaped := strconv.QuoteRune(c)
			out.WriteString(escaped[1 : len(escaped)-1])
		}
	}
	out.WriteRune(quote)
}

// typeName is the name of a value's type in Python.
func typeName(value any) string {
	switch value.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case string:
		return "str"
	case json.Number:
		return "int"
	case float:
		return "float"
	case []any:
		return "list"
	}
	return "dict"
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
