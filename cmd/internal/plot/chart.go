package plot

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/guptarohit/asciigraph"

	"github.com/cl-slurm/cl-slurm/cmd/internal/columns"

	"github.com/cl-slurm/cl-slurm/internal/curve"
)

// Series is a series of points in the order of X, with a name for the legend.
type Series struct {
	Name   string
	Points []curve.Point
}

// Chart is a drawing of series over one axis.
type Chart struct {
	Title  string
	Series []Series
	// Width and Height are the numbers of columns and lines that there are for all of it.
	Width, Height int
	Style         Style
	// Colour paints the series in the colours of a terminal.
	Colour bool
	// Log has a logarithmic Y axis: numbers that are not above 0 are gaps.
	Log bool
}

// Style is the kind of characters of a drawing.
type Style int

// The styles. Braille patterns have eight dots in a character; series that colours do not tell apart are drawn as in Box.
const (
	Box Style = iota
	Braille
	ASCII
)

// marks tell series apart where colours do not. MostSeries is the number of series that a chart can have.
const marks = "*+x#o@%&=~abcdefghijklmnpqrstuvwyz0123456789"

// MostSeries is the number of series that a chart can tell apart.
const MostSeries = len(marks)

// colours are those of every terminal, so that they fit the user's theme: green, red, blue, yellow, magenta, cyan.
func colours() []asciigraph.AnsiColor {
	return []asciigraph.AnsiColor{asciigraph.Green, asciigraph.Maroon, asciigraph.Navy, asciigraph.Olive, asciigraph.Purple, asciigraph.Teal}
}

// colourOf returns the colour of a series.
func colourOf(i int) asciigraph.AnsiColor { return colours()[i%len(colours())] }

// The least size of a chart without its title, axis and legend.
const (
	leastWidth  = 4
	leastHeight = 2
)

// bounds are the ranges of the axes.
type bounds struct {
	x0, x1, y0, y1 float64
	// whole is set if all X are whole numbers, such as steps.
	whole bool
}

// ticks is the number of marks on the X axis of a drawing.
func (b bounds) ticks(width int) int {
	n := max(width/12, 2)
	if length := b.x1 - b.x0; b.whole && length < float64(n) {
		return int(length) + 1
	}
	return n
}

// Lines draws the chart. It returns nil if no series has a number. No line is wider than Width, and there are more than
// Height only if the legend needs them.
func (c Chart) Lines() []string {
	if c.Log {
		c.Series = logarithms(c.Series)
	}
	b, ok := boundsOf(c.Series)
	if !ok {
		return nil
	}
	legend := c.legend()
	height := max(c.Height-len(legend)-3, leastHeight) // the title and the axis with its labels
	var lines []string
	for width := max(c.Width-3, leastWidth); ; width-- {
		lines = c.draw(b, width, height)
		if fit(lines, c.Width) || width <= leastWidth {
			break
		}
	}
	lines = slices.Concat([]string{c.Title}, lines, legend)
	for i, line := range lines {
		lines[i] = columns.Cut(line, c.Width)
	}
	return lines
}

// fit reports whether lines are as narrow as a terminal.
func fit(lines []string, width int) bool {
	return !slices.ContainsFunc(lines, func(line string) bool { return columns.Width(line) > width })
}

// logarithms returns the series with the logarithms of their numbers.
func logarithms(series []Series) []Series {
	out := make([]Series, len(series))
	for i, s := range series {
		out[i].Name = s.Name
		for _, p := range s.Points {
			out[i].Points = append(out[i].Points, curve.Point{X: p.X, Y: math.Log10(p.Y)}) // NaN and infinities are gaps
		}
	}
	return out
}

func boundsOf(series []Series) (bounds, bool) {
	b := bounds{math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1), true}
	for _, s := range series {
		for _, p := range s.Points {
			if !p.IsGap() {
				b = bounds{min(b.x0, p.X), max(b.x1, p.X), min(b.y0, p.Y), max(b.y1, p.Y), b.whole && p.X == math.Trunc(p.X)}
			}
		}
	}
	if b.x0 > b.x1 {
		return b, false
	}
	b.x0, b.x1 = widened(b.x0, b.x1)
	b.y0, b.y1 = widened(b.y0, b.y1)
	return b, true
}

// widened returns a range around a number that is a range's only one.
func widened(low, high float64) (float64, float64) {
	if low != high {
		return low, high
	}
	room := max(math.Abs(low)/10, 1)
	return max(low-room, -math.MaxFloat64), min(high+room, math.MaxFloat64)
}

// draw draws the series on so many columns and lines, with the axes around them.
func (c Chart) draw(b bounds, width, height int) []string {
	top, ticks := float64(height-1), b.ticks(width)
	data := make([][]float64, len(c.Series))
	options := []asciigraph.Option{
		asciigraph.Height(height - 1), asciigraph.LowerBound(0), asciigraph.UpperBound(top),
		asciigraph.YAxisValueFormatter(func(y float64) string { return c.label(between(y/top, b.y0, b.y1), b.y1/top-b.y0/top) }),
		asciigraph.XAxisRange(0, 1), asciigraph.XAxisTickCount(ticks),
		asciigraph.XAxisValueFormatter(func(x float64) string {
			return number(between(x, b.x0, b.x1), (b.x1/2-b.x0/2)/float64(ticks-1)*2, b.whole)
		}),
	}
	var shapes []asciigraph.CharSet
	var painted []asciigraph.AnsiColor
	for i, s := range c.Series {
		// The library draws from one column to the next, and needs one more after the last.
		data[i] = append(columnsOf(s.Points, b, width, top), math.NaN())
		shapes = append(shapes, c.shape(i))
		painted = append(painted, colourOf(i))
	}
	options = append(options, asciigraph.SeriesChars(shapes...))
	if c.Colour && !c.inBraille() {
		options = append(options, asciigraph.SeriesColors(painted...))
	}
	text := asciigraph.PlotMany(data, options...)
	if c.inBraille() {
		text = c.dotted(text, b, width, height)
	}
	if c.Style == ASCII {
		text = strings.NewReplacer("┤", "|", "┼", "|", "└", "+", "┬", "+", "─", "-").Replace(text)
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// inBraille reports whether the series are drawn in Braille patterns.
func (c Chart) inBraille() bool { return c.Style == Braille && !c.marked() }

// marked reports whether series have marks of their own, because colours do not tell them apart.
func (c Chart) marked() bool {
	return len(c.Series) > 1 && (c.Style == ASCII || !c.Colour || len(c.Series) > len(colours()))
}

// dotted draws the series in Braille patterns in place of those in a drawing without colours.
func (c Chart) dotted(text string, b bounds, width, height int) string {
	v := newCanvas(width, height)
	for i, s := range c.Series {
		v.line(i, s.Points, b)
	}
	var colour func(int) asciigraph.AnsiColor
	if c.Colour {
		colour = colourOf
	}
	lines := strings.Split(text, "\n")
	for i := range min(height, len(lines)) {
		if axis := strings.IndexAny(lines[i], "┤┼"); axis >= 0 {
			lines[i] = lines[i][:axis] + "┤" + v.text(i, colour)
		}
	}
	return strings.Join(lines, "\n")
}

// label formats a number of the Y axis, with lines that are a step apart.
func (c Chart) label(y, step float64) string {
	if c.Log {
		return strconv.FormatFloat(math.Pow(10, y), 'g', 3, 64)
	}
	if unit := math.Pow(10, math.Floor(math.Log10(step))-2); unit > 0 && !math.IsInf(y/unit, 0) { // 0 is 0, and not nearly so
		y = math.Round(y/unit) * unit
	}
	return number(y, step, false)
}

// number formats a number with as many digits as numbers need that are a step apart, and at least three. Among whole
// numbers it is a whole one.
func number(n, step float64, whole bool) string {
	if (whole || step >= 10) && math.Abs(n) < 1e7 {
		return strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	}
	digits := 3.0
	if step > 0 && n != 0 {
		digits = min(max(digits, math.Ceil(math.Log10(math.Abs(n)/step))+1), 12)
	}
	return strconv.FormatFloat(n, 'g', int(digits), 64)
}

// between returns the number at a share of the way from a to b.
func between(share, a, b float64) float64 { return a*(1-share) + b*share }

// shape returns the characters of a series.
func (c Chart) shape(i int) asciigraph.CharSet {
	switch {
	case c.marked():
		return asciigraph.CreateCharSet(marks[i%len(marks) : i%len(marks)+1])
	case c.Style == ASCII:
		shape := asciigraph.CreateCharSet("+")
		shape.Horizontal, shape.VerticalLine, shape.StartCap, shape.EndCap = "-", "|", "-", "-"
		return shape
	}
	return asciigraph.DefaultCharSet
}

// legend names the series, if there are several.
func (c Chart) legend() []string {
	if len(c.Series) < 2 {
		return nil
	}
	var lines []string
	for i, s := range c.Series {
		mark := c.shape(i).Horizontal
		if c.Colour {
			mark = colourOf(i).String() + mark + asciigraph.Default.String()
		}
		lines = append(lines, "  "+mark+" "+s.Name)
	}
	return lines
}
