package codalab

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// number is an integer in any form that a Python server may write: 60, 60.0, "60", "60.0", or
// null and "" for 0. Fractions are truncated, as by Python's int()
// (codalab/worker/bundle_state.py: RunResources.from_dict).
type number struct {
	value int64
	// bad is the text that is not a number, or does not fit an int64; empty for a good number.
	bad string
}

// UnmarshalJSON does not fail for a bad number: callers check bad.
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
	return number{bad: text}
}

// truncate drops a number's fraction; false means that the number does not fit an int64.
func truncate(f float64) (int64, bool) {
	// float64(MaxInt64) is 2^63, one more than an int64 holds.
	if math.IsNaN(f) || f < math.MinInt64 || f >= math.MaxInt64 {
		return 0, false
	}
	return int64(f), true
}

// String is the number for an error message.
func (n number) String() string {
	if n.bad != "" {
		return strconv.Quote(n.bad)
	}
	return strconv.FormatInt(n.value, 10)
}

// field is a number of a message and its destination.
type field struct {
	name  string
	given number
	to    *int64
}

// readNumbers stores the numbers of a message.
func readNumbers(fields ...field) error {
	for _, f := range fields {
		if f.given.bad != "" {
			return fmt.Errorf("%s is %s, which is no whole number", f.name, f.given)
		}
		*f.to = f.given.value
	}
	return nil
}

// QuoteNonNumbers quotes NaN, Infinity and -Infinity. Python writes them for floats, but they
// are not JSON, and encoding/json would refuse the whole answer.
func QuoteNonNumbers(body []byte) []byte {
	if json.Valid(body) {
		return body
	}
	return stringOrNonNumber().ReplaceAllFunc(body, func(found []byte) []byte {
		if found[0] == '"' {
			return found
		}
		return []byte(strconv.Quote(string(found)))
	})
}

// stringOrNonNumber also matches strings, so that words within strings are not replaced.
var stringOrNonNumber = lazyregexp.New(`"(?:[^"\\]|\\(?s:.))*"|-?Infinity|NaN`)
