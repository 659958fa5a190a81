package store

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Each change of a bundle reads and writes its metadata, some forty plain values, and a run has a dozen changes. encoding/json
// takes most of the time of such a change, so this file reads and writes plain values itself, as encoding/json would, and leaves all
// others to it.

// decodeMetadata reads the column metadata as json.Unmarshal does.
func decodeMetadata(text string) (m codalab.Metadata, err error) {
	if utf8.ValidString(text) {
		if m, ok := plainObject(text); ok {
			return m, nil
		}
	}
	err = json.Unmarshal([]byte(text), &m)
	return m, err
}

// plainObject reads an object of plain values.
func plainObject(text string) (codalab.Metadata, bool) {
	r := plainReader{text}
	if !r.skip('{') {
		return nil, false
	}
	const members = 40
	m := make(codalab.Metadata, min(members, 1+strings.Count(text, ":")))
	for first := true; !r.skip('}'); first = false {
		if !first && !r.skip(',') {
			return nil, false
		}
		key, ok := r.text()
		if !ok || !r.skip(':') {
			return nil, false
		}
		if m[key], ok = r.value(); !ok {
			return nil, false
		}
	}
	return m, r.rest == ""
}

// plainReader reads JSON without white space and escapes. Its methods return false at anything else, after which it is of no use.
type plainReader struct{ rest string }

// skip skips a byte, if it is the next one.
func (r *plainReader) skip(c byte) bool {
	if r.rest == "" || r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// text reads a text.
func (r *plainReader) text() (string, bool) {
	if !r.skip('"') {
		return "", false
	}
	for i := range len(r.rest) {
		switch c := r.rest[i]; {
		case c == '"':
			text := r.rest[:i]
			r.rest = r.rest[i+1:]
			return text, true
		case c < ' ' || c == '\\':
			return "", false
		}
	}
	return "", false
}

// value reads a text, a number, a truth value, null or a list of them.
func (r *plainReader) value() (any, bool) {
	switch {
	case r.rest == "":
		return nil, false
	case r.rest[0] == '"':
		return r.text()
	case r.skip('['):
		return r.list()
	}
	end := strings.IndexAny(r.rest, ",]}")
	if end < 0 {
		return nil, false
	}
	word := r.rest[:end]
	r.rest = r.rest[end:]
	switch word {
	case "true":
		return true, true
	case "false":
		return false, true
	case "null":
		return nil, true
	}
	n, err := strconv.ParseFloat(word, 64)
	return n, err == nil && isNumber(word)
}

// list reads the rest of a list.
func (r *plainReader) list() (any, bool) {
	list := []any{}
	for !r.skip(']') {
		if len(list) > 0 && !r.skip(',') {
			return nil, false
		}
		one, ok := r.value()
		if !ok {
			return nil, false
		}
		list = append(list, one)
	}
	return list, true
}

// isNumber reports whether a number, which strconv can read, has the form of most numbers of JSON: strconv reads others, too.
func isNumber(word string) bool {
	digits := strings.TrimPrefix(word, "-")
	whole, fraction, found := strings.Cut(digits, ".")
	if strings.Trim(whole+fraction, "0123456789") != "" || whole == "" || found && fraction == "" {
		return false
	}
	return len(whole) == 1 || whole[0] != '0'
}

// encodeMetadata returns the column metadata, which is json.Marshal's.
func encodeMetadata(m codalab.Metadata) (string, error) {
	if m == nil {
		return "null", nil
	}
	const each = 40 // bytes of a member, about
	b := append(make([]byte, 0, each*(len(m)+1)), '{')
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendText(b, key); err != nil {
			return "", err
		}
		if b, err = appendValue(append(b, ':'), m[key]); err != nil {
			return "", err
		}
	}
	return string(append(b, '}')), nil
}

// appendValue appends a value to JSON.
func appendValue(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		if a := math.Abs(v); v == 0 || a >= 1e-6 && a < 1e21 { // beyond, encoding/json writes an exponent
			return strconv.AppendFloat(b, v, 'f', -1, 64), nil
		}
	case string:
		return appendText(b, v)
	case []string:
		return appendList(b, v)
	case []any:
		return appendList(b, v)
	}
	return appendOther(b, value)
}

// appendOther appends a value that is not plain.
func appendOther(b []byte, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", value, err)
	}
	return append(b, text...), nil
}

func appendText(b []byte, text string) ([]byte, error) {
	if !isPlain(text) {
		return appendOther(b, text)
	}
	return append(append(append(b, '"'), text...), '"'), nil
}

func appendList[T any](b []byte, list []T) (_ []byte, err error) {
	if list == nil {
		return append(b, "null"...), nil
	}
	b = append(b, '[')
	for i, one := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, one); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// isPlain reports whether encoding/json writes a text as it is.
func isPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}
