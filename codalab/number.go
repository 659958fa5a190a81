package codalab

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// number is a whole number in any form in which a Python server may write it:
// 60, 60.0, "60", "60.0", or null and "" for 0. A fraction is cut off, as
// Python's int() does (codalab/worker/bundle_state.py: RunResources.from_dict).
type number struct {
	value int64
	// odd is what was written where that is no number, or none that an int64
	// holds; empty otherwise.
	odd string
}

// UnmarshalJSON never fails: whoever needs the number looks at odd.
func (n *number) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	if data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return fmt.Errorf("decode number: %w", err)
		}
	}
	*n = parseNumber(text)
	return nil
}

func parseNumber(text string) number {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return number{}
	}
	if i, err := strconv.ParseInt(trimmed, 10, 64); err == nil {
		return number{value: i}
	}
	if f, err := strconv.ParseFloat(trimmed, 64); err == nil {
		if i, ok := truncate(f); ok {
			return number{value: i}
		}
	}
	const most = 40
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return number{odd: text}
}

// truncate cuts a number's fraction off; false means that no int64 holds it.
func truncate(f float64) (int64, bool) {
	// float64(MaxInt64) is 2^63, one more than an int64 holds.
	if math.IsNaN(f) || f < math.MinInt64 || f >= math.MaxInt64 {
		return 0, false
	}
	return int64(f), true
}

// String is the number as a reader may see it.
func (n number) String() string {
	if n.odd != "" {
		return strconv.Quote(n.odd)
	}
	return strconv.FormatInt(n.value, 10)
}

// field is a number of a message and where it is to be put.
type field struct {
	name  string
	given number
	to    *int64
}

// readNumbers stores the numbers of a message.
func readNumbers(fields ...field) error {
	for _, f := range fields {
		if f.given.odd != "" {
			return fmt.Errorf("%s is %s, which is no whole number", f.name, f.given)
		}
		*f.to = f.given.value
	}
	return nil
}

// quoteNonNumbers puts NaN, Infinity and -Infinity between quotes. Python writes
// them for floats, but they are not JSON, and encoding/json would refuse the
// whole answer.
func quoteNonNumbers(body []byte) []byte {
	if json.Valid(body) {
		return body
	}
	return stringOrNonNumber.ReplaceAllFunc(body, func(found []byte) []byte {
		if found[0] == '"' {
			return found
		}
		return []byte(strconv.Quote(string(found)))
	})
}

// stringOrNonNumber finds strings too, so that a word within one is left alone.
var stringOrNonNumber = regexp.MustCompile(`"(?:[^"\\]|\\(?s:.))*"|-?Infinity|NaN`)
