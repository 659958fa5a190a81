package codalab

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// Comparison is a keyword of a search that compares a key with values, in a way that CodaLab's own server does not know.
// A key that begins with a slash is the genpath of a value in a file.
type Comparison struct {
	Key string
	// Op is "=", "!=", "<", "<=", ">" or ">="; empty for a value in a file that need only be there.
	Op    string
	Value string
}

var (
	// valueWord has a value in a file as its key. The operator is the first one after the colon, if there is one before
	// the value: a name of a file may have "=" in it.
	valueWord = lazyregexp.New(`(?s)^(/[^:]*(?::.*?)?)(!=|<=|>=|=|<|>)(.*)$`)
	// comparedWord compares another key. No name of a bundle has such characters.
	comparedWord = lazyregexp.New(`(?s)^([\pL\pN_/]+)(!=|<=|>=|<|>)(.*)$`)
)

// ParseComparison reads a keyword; false if it is none that only our server knows.
func ParseComparison(word string) (Comparison, bool) {
	m := comparedWord().FindStringSubmatch(word)
	if strings.HasPrefix(word, "/") {
		if m = valueWord().FindStringSubmatch(word); m == nil {
			return Comparison{Key: word}, true
		}
	}
	if m == nil {
		return Comparison{}, false
	}
	return Comparison{Key: m[1], Op: m[2], Value: strings.ReplaceAll(m[3], ".*", "%")}, true
}

// IsFileValue reports whether a key is the genpath of a value in a file.
func IsFileValue(key string) bool { return strings.HasPrefix(key, "/") }

// Bound returns the finite number with which "<", "<=", ">" and ">=" compare; false if the value is none.
func (c Comparison) Bound() (float64, bool) {
	n, err := strconv.ParseFloat(c.Value, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// Holds reports whether a value of a bundle meets the comparison, as our server judges it.
func (c Comparison) Holds(value any) bool {
	text, number, ok := ScalarValue(value)
	switch c.Op {
	case "":
		return ok
	case "=", "!=":
		return ok && c.equals(text, number) == (c.Op == "=")
	}
	bound, isNumber := c.Bound()
	if !ok || number == nil || !isNumber {
		return false
	}
	switch c.Op {
	case "<":
		return *number < bound
	case "<=":
		return *number <= bound
	case ">":
		return *number > bound
	}
	return *number >= bound
}

// equals reports whether a value is one of the comparison's.
func (c Comparison) equals(text string, number *float64) bool {
	for one := range strings.SplitSeq(c.Value, ",") {
		n, isNumber := Comparison{Value: one}.Bound()
		if isNumber && number != nil && *number == n || !isNumber && isLike(text, one) {
			return true
		}
	}
	return false
}

// isLike compares a text with a pattern in which "%" stands for any text, without regard to case.
func isLike(text, pattern string) bool {
	parts := strings.Split(pattern, "%")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	like, err := regexp.Compile("(?is)^" + strings.Join(parts, ".*") + "$")
	return err == nil && like.MatchString(text)
}
