package keywords

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Number is the result of a search for a number: an integer for a count, a float for a total.
// Its JSON has a decimal point exactly if it is a float, as Python's has.
type Number struct {
	value float64
	whole bool
}

// Count returns a number of objects as a Number.
func Count(n int64) Number { return Number{float64(n), true} }

// Total returns a total as a Number.
func Total(f float64) Number { return Number{f, false} }

// MarshalJSON writes the number as Python does.
func (n Number) MarshalJSON() ([]byte, error) { return []byte(n.String()), nil }

// String returns Python's str() of the number.
func (n Number) String() string {
	if n.whole {
		return strconv.FormatFloat(n.value, 'f', 0, 64)
	}
	return codalab.PythonFloat(n.value).String()
}

// Format applies a post-processing to a number: functions separated by " | ", each of them str,
// date, duration, size, a printf format with one number, s/REGEXP/TEXT, [FROM:TO], or "key NAME".
// The result is for JSON: a text, a Number, or an object. If a function cannot be applied, Format
// returns the result of the functions before it (codalab/lib/worksheet_util.py: apply_func).
func Format(functions string, n Number) any {
	if functions == "" {
		return n
	}
	// Replacements can multiply the length of a text.
	const maxFunctions, maxResult = 10, 1000
	var result any = n
	for i, f := range strings.Split(functions, " | ") {
		next, err := apply(f, result)
		if text, ok := next.(string); err != nil || i == maxFunctions || ok && len(text) > maxResult {
			return result
		}
		result = next
	}
	return result
}

func apply(function string, to any) (any, error) {
	switch {
	case function == "str":
		return codalab.PythonStr(to), nil
	case function == "date" || function == "duration" || function == "size" || strings.HasPrefix(function, "%"):
		f, err := strconv.ParseFloat(codalab.PythonStr(to), 64)
		if err != nil || math.IsNaN(f) || math.Abs(f) > 1<<50 {
			return nil, Refuse("not a number: %v", to)
		}
		return formatNumber(function, f)
	case strings.HasPrefix(function, "s/"):
		return substitute(function, to)
	case strings.HasPrefix(function, "["):
		return substring(function, to)
	case strings.HasPrefix(function, "key "):
		return map[string]any{strings.TrimPrefix(function, "key "): to}, nil
	}
	return "<invalid function: " + function + ">", nil
}

func formatNumber(function string, f float64) (any, error) {
	switch function {
	case "date":
		const latest = 253402300799 // the end of the year 9999
		if math.Abs(f) > latest {
			return nil, Refuse("not a date: %v", f)
		}
		return time.UnixMicro(int64(f * 1e6)).UTC().Format("2006-01-02 15:04:05.999999"), nil
	case "duration":
		return codalab.FormatDuration(time.Duration(math.Min(f, 1<<33) * 1e9)), nil
	case "size":
		text := codalab.FormatSize(int64(f))
		if f < 1024 {
			text += " bytes"
		}
		return text, nil
	}
	// One conversion of a number, with texts around it; "%%" is a percent sign.
	form := regexp.MustCompile(`^(%[-+ #0]*[0-9]{0,3}(?:\.[0-9]{0,3})?)([diufFeEgG])((?:[^%]|%%)*)$`)
	m := form.FindStringSubmatch(function)
	switch {
	case m == nil:
		return nil, Refuse("not a format: %s", function)
	case strings.Contains("diu", m[2]):
		return fmt.Sprintf(m[1]+"d"+m[3], int64(f)), nil
	}
	return fmt.Sprintf(m[1]+m[2]+m[3], f), nil
}

// substitute replaces the matches of a regular expression. "\/" in it is a slash.
func substitute(function string, to any) (any, error) {
	const slash = "\x00" // Parse refuses it in a keyword
	parts := strings.Split(strings.ReplaceAll(function, `\/`, slash), "/")
	text, ok := to.(string)
	if len(parts) != 3 {
		return "<invalid regex: " + function + ">", nil
	}
	from, err := regexp.Compile(strings.ReplaceAll(parts[1], slash, "/"))
	if err != nil || !ok {
		return nil, Refuse("cannot replace")
	}
	return from.ReplaceAllLiteralString(text, strings.ReplaceAll(parts[2], slash, "/")), nil
}

// substring takes characters FROM to TO of a text. A negative number counts from the end.
func substring(function string, of any) (any, error) {
	text, ok := of.(string)
	m := regexp.MustCompile(`^\[(-?[0-9]{0,9}):(-?[0-9]{0,9})\]`).FindStringSubmatch(function)
	if m == nil {
		return "<invalid function: " + function + ">", nil
	}
	if !ok {
		return nil, Refuse("not a text: %v", of)
	}
	letters := []rune(text)
	at := func(text string, missing int) int {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return missing
		case n < 0:
			n += len(letters)
		}
		return min(max(n, 0), len(letters))
	}
	from, to := at(m[1], 0), at(m[2], len(letters))
	return string(letters[min(from, to):to]), nil
}
