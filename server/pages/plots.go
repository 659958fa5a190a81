package pages

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The size of plots, in their own units, and the most runs and axes that they draw.
const (
	plotWidth, plotHeight         = 720.0, 380.0
	plotLeft, plotRight           = 90.0, 30.0
	plotTop, plotBottom           = 30.0, 70.0
	missingStrip                  = 26.0 // from an axis to the runs that miss its value
	mostDrawn                     = 1000
	mostAxes                      = 7
	longestTitle                  = 300
	insideWidth, insideHeight     = plotWidth - plotLeft - plotRight - missingStrip, plotHeight - plotTop - plotBottom - missingStrip
	insideLeft, insideRight       = plotLeft + missingStrip, plotWidth - plotRight
	insideTop, insideBottom       = plotTop, plotHeight - plotBottom - missingStrip
	missingColumn, missingLine    = plotLeft + missingStrip/2, insideBottom + missingStrip/2
	parallelLeft, parallelRight   = 60.0, plotWidth - 60
	parallelBottom, parallelNoted = plotHeight - 60.0, plotHeight - 40.0
)

// mark is a tick of an axis in a picture.
type mark struct {
	Label string
	X, Y  string
}

// point is a run in a scatter plot.
type point struct {
	UUID, Title, X, Y string
	// Whole is false for a run that misses a value.
	Whole bool
}

// scatter is a scatter plot of runs.
type scatter struct {
	X, Y           axis
	XMarks, YMarks []mark
	Points         []point
	// Left is the number of runs that are not drawn.
	Left int
}

func coordinate(x float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
}

// newScatter draws runs by two columns; nil if there is nothing to draw.
func newScatter(t members, x, y string) *scatter {
	xs, ys := t.cells(x), t.cells(y)
	if len(xs) == 0 || len(ys) == 0 || !slices.ContainsFunc(ys, func(c cell) bool { return c.There }) {
		return nil
	}
	s := &scatter{X: newAxis(label(x), xs), Y: newAxis(label(y), ys), Left: max(0, len(xs)-mostDrawn)}
	for _, m := range s.X.Ticks {
		s.XMarks = append(s.XMarks, mark{m.Label, coordinate(insideLeft + m.At*insideWidth), coordinate(plotHeight - plotBottom + 18)})
	}
	for _, m := range s.Y.Ticks {
		s.YMarks = append(s.YMarks, mark{m.Label, coordinate(plotLeft - 6), coordinate(insideBottom - m.At*insideHeight)})
	}
	for i, m := range t.Rows[:len(xs)-s.Left] {
		p := point{UUID: m.UUID, X: coordinate(missingColumn), Y: coordinate(missingLine)}
		atX, thereX := s.X.at(xs[i])
		atY, thereY := s.Y.at(ys[i])
		if thereX {
			p.X = coordinate(insideLeft + atX*insideWidth)
		}
		if thereY {
			p.Y = coordinate(insideBottom - atY*insideHeight)
		}
		p.Whole = thereX && thereY
		p.Title = title(m, []string{label(x), label(y)}, []cell{xs[i], ys[i]})
		s.Points = append(s.Points, p)
	}
	return s
}

// title names a run and some of its values.
func title(m member, names []string, cells []cell) string {
	parts := []string{m.Name() + " (" + string(m.State) + ")"}
	for i, c := range cells {
		text := c.Text
		if !c.There {
			text = "missing"
		}
		parts = append(parts, names[i]+" "+text)
	}
	text := strings.ToValidUTF8(strings.Join(parts, ", "), "\ufffd")
	if runes := []rune(text); len(runes) > longestTitle {
		text = string(runes[:longestTitle]) + "…"
	}
	return text
}

// parallelAxis is an axis of parallel coordinates.
type parallelAxis struct {
	axis
	X     string
	Marks []mark
}

// parallelLine is a run in parallel coordinates.
type parallelLine struct {
	UUID, Title, Points string
	// Best is set for the best tenth of the ready runs, by the last axis.
	Best bool
}

// parallel has the parallel coordinates of runs.
type parallel struct {
	Axes  []parallelAxis
	Lines []parallelLine
	// Left is the number of runs, and LeftAxes that of columns, that are not drawn.
	Left, LeftAxes int
	// By names the last axis if it has numbers.
	By string
}

// newParallel draws runs as lines over columns; nil if there are fewer than two of these.
func newParallel(t members, columns []string) *parallel {
	if len(columns) < 2 || len(t.Rows) == 0 {
		return nil
	}
	p := &parallel{Left: max(0, len(t.Rows)-mostDrawn), LeftAxes: max(0, len(columns)-mostAxes)}
	last := columns[len(columns)-1]
	columns = append(slices.Clone(columns[:len(columns)-1-p.LeftAxes]), last)
	all := make([][]cell, len(columns))
	names := make([]string, len(columns))
	xs := make([]string, len(columns))
	for n, column := range columns {
		all[n], names[n] = t.cells(column), label(column)
		a := parallelAxis{axis: newAxis(names[n], all[n])}
		xs[n] = coordinate(parallelLeft + (parallelRight-parallelLeft)*float64(n)/float64(len(columns)-1))
		a.X = xs[n]
		for _, m := range a.Ticks {
			a.Marks = append(a.Marks, mark{m.Label, a.X, coordinate(parallelAt(m.At))})
		}
		p.Axes = append(p.Axes, a)
	}
	isBest := bestTenth(t, last, all[len(all)-1])
	if isNumeric(all[len(all)-1]) {
		p.By = label(last)
	}
	for i, m := range t.Rows[:len(t.Rows)-p.Left] {
		line := parallelLine{UUID: m.UUID, Best: isBest[i]}
		values := make([]cell, len(columns))
		var points []string
		for n := range columns {
			values[n] = all[n][i]
			y := parallelNoted
			if at, there := p.Axes[n].at(values[n]); there {
				y = parallelAt(at)
			}
			points = append(points, xs[n]+","+coordinate(y))
		}
		line.Points, line.Title = strings.Join(points, " "), title(m, names, values)
		p.Lines = append(p.Lines, line)
	}
	slices.SortStableFunc(p.Lines, func(a, b parallelLine) int { // the best ones above the others
		switch {
		case a.Best == b.Best:
			return 0
		case a.Best:
			return 1
		}
		return -1
	})
	return p
}

func parallelAt(at float64) float64 { return parallelBottom - at*(parallelBottom-plotTop-20) }

// bestTenth reports for each run whether it is among the best tenth of the ready ones, at least one of them.
func bestTenth(t members, column string, list []cell) []bool {
	var order []int
	for i, c := range list {
		if c.There && c.Number != nil && t.Rows[i].State == codalab.StateReady {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareCells(list[a], list[b], !codalab.LowestIsBest(column)) })
	is := make([]bool, len(list))
	for _, i := range order[:(len(order)+9)/10] {
		is[i] = true
	}
	return is
}
