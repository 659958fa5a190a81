package grid

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// most bounds the values of an axis, so that their number has a type.
const most = 1 << 62

// axis is a factor of one setting.
type axis struct {
	name     string
	segments []segment
}

// segment is a part of an axis: a text, a range with steps, or a range without end.
type segment struct {
	text string
	// n is the number of values; 0 for a range without end.
	n uint64
	// first and step are those of a range with steps, which has decimals digits behind the point, and at least width
	// digits in all.
	first, step     *big.Rat
	decimals, width int
	between         *interval
}

func (a axis) names() []string { return []string{a.name} }

func (a axis) count() uint64 {
	n := uint64(0)
	for _, s := range a.segments {
		n = min(n+s.n, most)
	}
	return n
}

func (a axis) at(i uint64) []string {
	for _, s := range a.segments {
		if s.between != nil {
			return []string{s.between.at(i)}
		}
		if i < s.n {
			return []string{s.at(i)}
		}
		i -= s.n
	}
	return nil
}

// at returns value i of a segment with steps, or its text.
func (s segment) at(i uint64) string {
	if s.step == nil {
		return s.text
	}
	value := new(big.Rat).SetUint64(i)
	value.Mul(value, s.step).Add(value, s.first)
	text := value.FloatString(s.decimals)
	sign := ""
	if rest, negative := strings.CutPrefix(text, "-"); negative {
		sign, text = "-", rest
	}
	return sign + strings.Repeat("0", max(0, s.width-len(text))) + text
}

const number = `[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?`

var (
	rangeForm = regexp.MustCompile(`^(log:)?(` + number + `?)\.\.(` + number + `)(?:\.\.(` + number + `))?$`)
	wholeForm = regexp.MustCompile(`^[+-]?[0-9]+$`)
)

// readAxis reads NAME=VALUES.
func readAxis(text string) (axis, error) {
	name, values, ok := strings.Cut(text, "=")
	if !ok {
		return axis{}, fmt.Errorf("--each wants NAME=VALUES, such as lr=0.1,0.01 or seed=1..4, and not %q", text)
	}
	if err := codalab.CheckSettingName(name); err != nil {
		return axis{}, err
	}
	a := axis{name: name}
	if values == "" {
		return a, fmt.Errorf("the setting %s has no values", name)
	}
	for value := range strings.SplitSeq(values, ",") {
		s, err := readSegment(value)
		if err != nil {
			return a, fmt.Errorf("setting %s: %w", name, err)
		}
		a.segments = append(a.segments, s)
		if s.between != nil && strings.Contains(values, ",") {
			return a, fmt.Errorf("setting %s: the range %s has no end, so nothing can stand beside it", name, value)
		}
	}
	return a, a.checkDuplicates()
}

// checkDuplicates refuses a value that is there twice. An axis that is too long for a sweep is left unchecked: a sample
// of it has no duplicates.
func (a axis) checkDuplicates() error {
	if len(a.segments) == 1 || a.count() > MaxMembers {
		return nil
	}
	seen := map[string]bool{}
	for i := range a.count() {
		value := a.at(i)[0]
		if seen[value] {
			return fmt.Errorf("the setting %s has the value %s twice", a.name, value)
		}
		seen[value] = true
	}
	return nil
}

func checkValue(value string) error {
	switch {
	case len(value) > codalab.MaxSetting:
		return fmt.Errorf("a value has %d bytes, and may have %d: upload it as a file, and let the setting name the file", len(value), codalab.MaxSetting)
	case !utf8.ValidString(value):
		return fmt.Errorf("the value %q is not UTF-8", value)
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("the value %q has a zero byte, which no command takes", value)
	}
	return nil
}

// readSegment reads one value or range.
func readSegment(text string) (segment, error) {
	m := rangeForm.FindStringSubmatch(text)
	switch {
	case text == "":
		return segment{}, fmt.Errorf("there is an empty value in the list; a file of --each-line can have one")
	case m == nil && strings.HasPrefix(text, "log:"):
		return segment{}, fmt.Errorf("%s is no range of numbers, such as log:1e-5..1e-1", text)
	case m == nil:
		return segment{text: text, n: 1}, checkValue(text)
	}
	logarithmic, from, to, step := m[1] != "", m[2], m[3], m[4]
	whole := wholeForm.MatchString(from) && wholeForm.MatchString(to)
	if step == "" && (logarithmic || !whole) {
		between, err := readInterval(from, to, logarithmic, whole)
		return segment{between: &between}, err
	}
	if logarithmic {
		return segment{}, fmt.Errorf("%s has a step, which a range with log: cannot have", text)
	}
	return readSteps(text, from, to, step)
}

// readSteps reads a range with steps; the empty step is 1, towards the end.
func readSteps(text, from, to, by string) (segment, error) {
	first, last, step := rational(from), rational(to), rational(by)
	if by == "" {
		step.SetInt64(1)
		if last.Cmp(first) < 0 {
			step.SetInt64(-1)
		}
	}
	span := new(big.Rat).Sub(last, first)
	if step.Sign() == 0 || span.Sign()*step.Sign() < 0 {
		return segment{}, fmt.Errorf("%s never comes to its end: the step must lead from %s to %s", text, from, to)
	}
	span.Quo(span, step)
	steps := new(big.Int).Quo(span.Num(), span.Denom())
	n := uint64(most)
	if steps.BitLen() < 62 {
		n = steps.Uint64() + 1
	}
	s := segment{n: n, first: first, step: step}
	for _, bound := range []string{from, to, by} {
		s.decimals = max(s.decimals, decimals(bound))
		digits := strings.TrimLeft(bound, "+-")
		if bound != by && len(digits) > 1 && digits[0] == '0' && wholeForm.MatchString(bound) {
			s.width = max(s.width, len(strings.TrimLeft(from, "+-")), len(strings.TrimLeft(to, "+-")))
		}
	}
	return s, nil
}

// rational returns the value of a number.
func rational(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(strings.TrimSuffix(text, "."))
	if !ok {
		return new(big.Rat) // the regular expression admits nothing else
	}
	return r
}

// decimals is the number of digits behind the point that a number needs.
func decimals(text string) int {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	power, _ := strconv.Atoi(strings.TrimPrefix(exponent, "+")) // 0 without an exponent
	return max(0, len(fraction)-power)
}

// interval is a range without steps.
type interval struct {
	low, high          float64
	lowText, highText  string
	logarithmic, whole bool
}

func readInterval(from, to string, logarithmic, whole bool) (interval, error) {
	low, err := strconv.ParseFloat(from, 64)
	high, err2 := strconv.ParseFloat(to, 64)
	switch {
	case err != nil || err2 != nil || math.IsInf(high-low, 0):
		return interval{}, fmt.Errorf("%s..%s is no range of numbers", from, to)
	case low >= high:
		return interval{}, fmt.Errorf("the range %s..%s is empty: the lower number comes first", from, to)
	case logarithmic && low <= 0:
		return interval{}, fmt.Errorf("a range with log: begins above 0, and log:%s..%s does not", from, to)
	}
	return interval{low, high, from, to, logarithmic, whole}, nil
}

// at returns the number that a random number of 64 bits determines, with four digits.
func (v interval) at(random uint64) string {
	share := float64(random>>11) / (1 << 53)
	value := v.low + share*(v.high-v.low)
	if v.logarithmic {
		value = v.low * math.Exp(share*math.Log(v.high/v.low))
	}
	text := strconv.FormatFloat(value, 'g', 4, 64)
	if v.whole {
		text = strconv.FormatFloat(math.Round(value), 'f', 0, 64)
	}
	switch rounded, _ := strconv.ParseFloat(text, 64); { // it is what FormatFloat wrote
	case rounded < v.low:
		return v.lowText
	case rounded > v.high:
		return v.highText
	}
	return text
}
