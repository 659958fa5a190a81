package codalab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// PythonFloat is a number that Python holds as a float, even if it has no fraction: 4.0.
type PythonFloat float64

// String returns Python's repr() of the float: the shortest digits that give the same number.
func (f PythonFloat) String() string {
	x := float64(f)
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	}
	text := strconv.FormatFloat(x, 'e', -1, 64)
	_, exponent, _ := strings.Cut(text, "e")
	if n, err := strconv.Atoi(exponent); err != nil || n < -4 || n >= 16 {
		return text
	}
	text = strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// MarshalJSON writes the number as Python does. JSON has no number for infinities and for NaN: they
// become texts.
func (f PythonFloat) MarshalJSON() ([]byte, error) {
	text := f.String()
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		text = strconv.Quote(text)
	}
	return []byte(text), nil
}

// DecodeExact decodes one JSON value, with json.Number for its numbers. A float64 would lose the difference
// between 4 and 4.0, which Python prints.
func DecodeExact(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode JSON: there is more than one value")
	}
	return value, nil
}

// DecodePython is DecodeExact for what Python's json module writes: NaN and infinities, which are no JSON, become texts.
func DecodePython(data []byte) (any, error) {
	value, err := DecodeExact(data)
	if err == nil {
		return value, nil
	}
	return DecodeExact(QuoteNonNumbers(data))
}

// PythonStr returns Python's str() of a JSON value. Scripts compare CodaLab's output with these texts.
//
// A json.Number keeps the difference between Python's int and float. A float64 does not, because
// encoding/json makes one of both: PythonStr takes it for an int if it is whole and at most 2^53. The
// keys of a dict come in the order of their texts, because a Go map has no order. A value of a type that
// JSON does not decode to, such as an int64 or a fmt.Stringer, has the text that package fmt gives it.
func PythonStr(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	return PythonRepr(value)
}

// PythonRepr returns Python's repr() of a JSON value, which quotes a text. The rules of PythonStr hold.
func PythonRepr(value any) string {
	var out strings.Builder
	writeRepr(&out, value)
	return out.String()
}

func writeRepr(out *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		out.WriteString("None")
	case bool:
		if v {
			out.WriteString("True")
		} else {
			out.WriteString("False")
		}
	case string:
		writeQuoted(out, v)
	case json.Number, float64:
		out.WriteString(numberText(v))
	case []any:
		writeList(out, v)
	case []string:
		writeList(out, v)
	case Metadata:
		writeDict(out, v)
	case map[string]any:
		writeDict(out, v)
	default: // PythonFloat, int, int64 and types with a String method
		_, _ = fmt.Fprint(out, v) // a Builder never fails
	}
}

// numberText returns the text of a number from JSON.
func numberText(value any) string {
	switch n := PythonNumber(value).(type) {
	case PythonFloat:
		return n.String()
	case json.Number:
		if whole, ok := new(big.Int).SetString(n.String(), 10); ok { // -0 is 0
			return whole.String()
		}
		return n.String()
	}
	return fmt.Sprint(value)
}

// PythonNumber returns a json.Number or float64 as the number that Python reads from the same JSON: a
// json.Number of digits alone for an int, else a PythonFloat. It returns other values unchanged.
func PythonNumber(value any) any {
	switch n := value.(type) {
	case json.Number:
		if strings.ContainsAny(n.String(), ".eE") {
			f, _ := strconv.ParseFloat(n.String(), 64) // infinite if it is too large, as in Python
			return PythonFloat(f)
		}
	case float64:
		const exact = 1 << 53
		if n == math.Trunc(n) && math.Abs(n) <= exact {
			return json.Number(strconv.FormatInt(int64(n), 10))
		}
		return PythonFloat(n)
	}
	return value
}

func writeList[E any](out *strings.Builder, list []E) {
	out.WriteByte('[')
	for i, element := range list {
		if i > 0 {
			out.WriteString(", ")
		}
		writeRepr(out, element)
	}
	out.WriteByte(']')
}

func writeDict(out *strings.Builder, dict map[string]any) {
	out.WriteByte('{')
	for i, key := range slices.Sorted(maps.Keys(dict)) {
		if i > 0 {
			out.WriteString(", ")
		}
		writeQuoted(out, key)
		out.WriteString(": ")
		writeRepr(out, dict[key])
	}
	out.WriteByte('}')
}

// writeQuoted writes repr() of a text (CPython, Objects/unicodeobject.c: unicode_repr).
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
		case c == '\t':
			out.WriteString(`\t`)
		case c == '\n':
			out.WriteString(`\n`)
		case c == '\r':
			out.WriteString(`\r`)
		case unicode.IsPrint(c): // str.isprintable() has the same categories
			out.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(out, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(out, `\u%04x`, c)
		default:
			fmt.Fprintf(out, `\U%08x`, c)
		}
	}
	out.WriteRune(quote)
}

// PythonType returns the name of a JSON value's type in Python.
func PythonType(value any) string {
	switch v := value.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case string:
		return "str"
	case PythonFloat:
		return "float"
	case json.Number, float64:
		if _, isFloat := PythonNumber(v).(PythonFloat); isFloat {
			return "float"
		}
		return "int"
	case int, int64:
		return "int"
	case []any, []string:
		return "list"
	}
	return "dict"
}
