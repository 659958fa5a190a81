// Package logcurves reads the numbers of a log as curves: of a file of rows (internal/rows), which a run may be writing. Each
// key with numbers is a curve over the step, the epoch or the like of a row, or over the row's number. Whatever is in the
// file, a Log keeps a bounded number of curves and points.
package logcurves

import (
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/curve"
	"github.com/cl-slurm/cl-slurm/internal/rows"
)

const (
	// mostCurves is the number of curves of a log, and mostOthers that of further keys that are counted.
	mostCurves = 24
	mostOthers = 1000
	// mostDepth is the number of dictionaries in each other whose numbers are read.
	mostDepth = 4
	// longestKey and mostOfARow bound what a row takes: a dictionary's key is before each of its own.
	longestKey = 200
	mostOfARow = 5000
)

// IsLog reports whether a file can have curves, by its name.
func IsLog(name string) bool { return rows.KindOf(name) != 0 }

// Log reads a log, one part after another as it grows.
type Log struct {
	rows rows.Reader
	// offset is the number of bytes of lines that were read, and row that of rows.
	offset int64
	row    int
	// x is the key over which the curves are drawn; empty for the row's number.
	x      string
	curves map[string]*one
	// order has the keys of the curves in the order of their coming.
	order  []string
	others map[string]bool
}

// one is a curve that is read.
type one struct {
	points curve.Thinned
	// numbers counts the numbers, and wrong all other values.
	numbers, wrong               int
	first, last, lowest, highest float64
}

// New returns a Log of a file of a name, for which IsLog is true.
func New(name string) *Log {
	return &Log{rows: rows.Reader{Kind: rows.KindOf(name)}, curves: map[string]*one{}, others: map[string]bool{}}
}

// Offset is the number of bytes that were read: the next part begins there.
func (l *Log) Offset() int64 { return l.offset }

// Read reads the next part of the file. A line without an end is read only if the part is the last one.
func (l *Log) Read(in io.Reader, last bool) error {
	n, err := l.rows.Read(in, last, l.add)
	l.offset += n
	return err
}

// steps are the names of keys over which a curve is drawn, in the order of their preference.
func steps() []string {
	return []string{"step", "global_step", "_step", "iteration", "iter", "batch", "epoch", "round", "time", "timestamp"}
}

// add adds a row. The first one with numbers tells over which key the curves are drawn.
func (l *Log) add(row map[string]any) {
	values := map[string]any{}
	flatten(values, "", row, mostDepth)
	if l.row++; l.row == 1 || len(l.curves) == 0 {
		l.x = stepOf(values)
	}
	x := float64(l.row)
	if l.x != "" {
		_, number, _ := codalab.ScalarValue(values[l.x])
		if number == nil {
			return
		}
		x = *number
	}
	var fresh []string
	for key, value := range values {
		if c := l.curves[key]; c != nil {
			c.add(x, value)
		} else if key != l.x {
			fresh = append(fresh, key)
		}
	}
	slices.Sort(fresh)
	for _, key := range fresh {
		l.begin(key, x, values[key])
	}
}

// begin begins a curve with its first number.
func (l *Log) begin(key string, x float64, value any) {
	if _, number, _ := codalab.ScalarValue(value); number == nil {
		return
	}
	if len(l.order) >= mostCurves {
		if len(l.others) < mostOthers {
			l.others[strings.Clone(key)] = true
		}
		return
	}
	c := &one{}
	key = strings.Clone(key) // which shares the memory of its row
	l.curves[key], l.order = c, append(l.order, key)
	c.add(x, value)
}

// stepOf returns the key over which curves are drawn; empty for none.
func stepOf(values map[string]any) string {
	keys := slices.Sorted(maps.Keys(values))
	for _, step := range steps() {
		for _, key := range keys {
			if _, number, _ := codalab.ScalarValue(values[key]); number != nil && strings.EqualFold(strings.TrimSpace(key), step) {
				return strings.Clone(key)
			}
		}
	}
	return ""
}

// flatten adds the values of a dictionary, and those of dictionaries in it with a slash between the keys, as rows.Value
// finds them.
func flatten(to map[string]any, prefix string, from map[string]any, depth int) {
	for key, value := range from {
		if len(prefix)+len(key) > longestKey || len(to) >= mostOfARow {
			continue
		}
		if in, ok := value.(map[string]any); !ok {
			to[prefix+key] = value
		} else if depth > 1 {
			flatten(to, prefix+key+"/", in, depth-1)
		}
	}
}

// add adds a value of a row.
func (c *one) add(x float64, value any) {
	text, number, ok := codalab.ScalarValue(value)
	switch {
	case number != nil:
		if c.numbers++; c.numbers == 1 {
			c.first, c.lowest, c.highest = *number, *number, *number
		}
		c.last, c.lowest, c.highest = *number, min(c.lowest, *number), max(c.highest, *number)
		c.points.Add(curve.Point{X: x, Y: *number})
	case ok && text == "": // a table has a cell for each column
	case value != nil:
		c.wrong++
		c.points.Add(curve.Gap(x))
	}
}

// Curves are those of a log, as they are now.
type Curves struct {
	// X is the key over which they are drawn, or "row".
	X      string  `json:"x"`
	Curves []Curve `json:"curves"`
	// Left is the number of further keys with numbers.
	Left int `json:"-"`
}

// Curve has the numbers of a key.
type Curve struct {
	Name string `json:"name"`
	// X and Y are its points; a Y of nil is a gap.
	X []float64  `json:"x"`
	Y []*float64 `json:"y"`
	// Numbers counts all numbers of the key, of which First, Last, Lowest and Highest are some.
	Numbers                      int     `json:"-"`
	First, Last, Lowest, Highest float64 `json:"-"`
}

// Curves returns the curves of what was read. Keys with less than two numbers, or with more other values, are no curves; nor
// is a table without a column of steps a log.
func (l *Log) Curves() Curves {
	out := Curves{X: l.x, Left: len(l.others)}
	if !l.HasCurves() {
		return Curves{}
	}
	if l.x == "" {
		out.X = "row"
	}
	for _, key := range l.order {
		c := l.curves[key]
		if c.numbers < 2 || c.wrong > c.numbers {
			continue
		}
		one := Curve{Name: key, Numbers: c.numbers, First: c.first, Last: c.last, Lowest: c.lowest, Highest: c.highest}
		for _, p := range c.points.AtMost(drawn) {
			one.X = append(one.X, p.X)
			y := &p.Y
			if math.IsNaN(p.Y) {
				y = nil
			}
			one.Y = append(one.Y, y)
		}
		out.Curves = append(out.Curves, one)
	}
	return out
}

// HasCurves reports whether the log may have curves, as far as it was read.
func (l *Log) HasCurves() bool {
	return len(l.order) > 0 && (l.x != "" || l.rows.Kind != rows.CSV)
}

// drawn is the number of points of a curve that a page gets: as many as a chart has columns of pixels.
const drawn = 1024
