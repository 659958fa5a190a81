package pages

import (
	"math"
	"slices"
	"strings"
)

const (
	// mostCategories is the number of texts that have a place of their own on an axis.
	mostCategories = 12
	// logFrom is the ratio of the largest and the smallest number from which an axis is logarithmic.
	logFrom = 100
	// longestTick bounds the text of a category in characters.
	longestTick = 16
)

// tick is a labelled place of an axis. At is between 0 and 1.
type tick struct {
	Label string
	At    float64
}

// axis places the values of a column along a line.
type axis struct {
	Label string
	// Log is set if equal distances are equal ratios.
	Log   bool
	Ticks []tick
	// Missing is set if some of the values are missing.
	Missing bool
	// low and high are the bounds, or their logarithms.
	low, high float64
	// categories are the texts of a column that are not numbers only; empty for numbers.
	categories []string
}

// newAxis makes an axis for the values of a column. It is numeric if all of them are numbers, and logarithmic if these are positive
// and spread wide. Else each text has its place, and those beyond mostCategories share one.
func newAxis(name string, list []cell) axis {
	a := axis{Label: name, low: math.Inf(1), high: math.Inf(-1)}
	for _, c := range list {
		switch {
		case !c.There:
			a.Missing = true
		case c.Number != nil:
			a.low, a.high = min(a.low, *c.Number), max(a.high, *c.Number)
		}
	}
	switch {
	case !isNumeric(list):
		a.setCategories(list)
	case a.low > 0 && a.high/a.low >= logFrom:
		a.Log = true
		a.low, a.high = math.Log10(a.low), math.Log10(a.high)
		a.setDecades()
	default:
		a.setNumbers()
	}
	return a
}

func (a *axis) setCategories(list []cell) {
	numbers := map[string]*float64{}
	for _, c := range list {
		if _, known := numbers[c.Text]; c.There && !known {
			numbers[c.Text] = c.Number
			a.categories = append(a.categories, c.Text)
		}
	}
	slices.SortFunc(a.categories, func(x, y string) int {
		return compareCells(cell{x, numbers[x], true}, cell{y, numbers[y], true}, false)
	})
	shown := a.categories[:min(len(a.categories), mostCategories)]
	for i, text := range shown {
		a.Ticks = append(a.Ticks, tick{abbreviated(text), a.categoryAt(i)})
	}
	if len(shown) < len(a.categories) {
		a.Ticks = append(a.Ticks, tick{"other", 1})
	}
}

// categoryAt is the place of a category.
func (a *axis) categoryAt(i int) float64 {
	places := min(len(a.categories), mostCategories+1)
	if places < 2 {
		return 0.5
	}
	return float64(min(i, places-1)) / float64(places-1)
}

func abbreviated(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if runes := []rune(text); len(runes) > longestTick {
		return string(runes[:longestTick-1]) + "…"
	}
	return text
}

// setDecades widens the bounds to powers of ten, and labels at most seven of them.
func (a *axis) setDecades() {
	a.low, a.high = math.Floor(a.low+1e-9), math.Ceil(a.high-1e-9)
	step := max(1, math.Ceil((a.high-a.low)/6))
	for e := a.low; e <= a.high; e += step {
		a.Ticks = append(a.Ticks, tick{number(math.Pow(10, e)), share(e, a.low, a.high)})
	}
}

// setNumbers widens the bounds to round numbers, and labels about five of them.
func (a *axis) setNumbers() {
	if a.low == a.high {
		a.Ticks = []tick{{number(a.low), 0.5}}
		return
	}
	step := roundStep(a.high/5 - a.low/5)
	low, high := math.Floor(a.low/step)*step, math.Ceil(a.high/step)*step
	if math.IsInf(low, 0) || math.IsInf(high, 0) || step == 0 { // numbers at the ends of what there is
		a.Ticks = []tick{{number(a.low), 0}, {number(a.high), 1}}
		return
	}
	a.low, a.high = low, high
	for i := 0.0; i <= 12; i++ {
		at := math.Round(low/step)*step + i*step
		if at > high+step/2 {
			break
		}
		if math.Abs(at) < step/1e6 {
			at = 0
		}
		a.Ticks = append(a.Ticks, tick{number(at), share(at, low, high)})
	}
}

// roundStep is the smallest of 1, 2 and 5 times a power of ten that is not below x.
func roundStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= x {
			return m * power
		}
	}
	return 10 * power
}

// at is the place of a value, between 0 and 1; false if it is missing.
func (a *axis) at(c cell) (float64, bool) {
	switch {
	case !c.There:
		return 0, false
	case len(a.categories) > 0:
		return a.categoryAt(slices.Index(a.categories, c.Text)), true
	case a.Log:
		return share(math.Log10(*c.Number), a.low, a.high), true
	}
	return share(*c.Number, a.low, a.high), true
}
