package pages

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/preview"
)

// The size of a graph, in its own units, and the most curves and points of one.
const (
	graphWidth, graphHeight = 640, 240
	mostCurves              = 12
	mostPoints              = 2000
)

// graph is a picture of curves. Without curves it says only why.
type graph struct {
	Width, Height int
	Curves        []curve
	// Of describes the curves, for those who do not see the picture.
	Of             string
	XLabel, YLabel string
	XTicks, YTicks []place
	// Left is the number of curves that are not shown.
	Left int
	// Empty are some files of which there is nothing to draw, and EmptyLeft is the number of the others.
	Empty     []emptyFile
	EmptyLeft int
}

type curve struct {
	Name string
	// Points are those of an SVG polyline.
	Points string
	// Number counts from 0; it gives the colour.
	Number int
}

// place is a labelled place of an axis, from its beginning or from the top, in percent.
type place struct {
	Label, At string
	// Anchor is the part of the label that has this place: its start, middle or end.
	Anchor string
}

// emptyFile is a file of which there is nothing to draw.
type emptyFile struct{ Title, Address, Why string }

type graphPoint struct{ x, y float64 }

// newGraph draws the last two columns of the lines of files, or their only one over the line's number.
func newGraph(b client.Block) *graph {
	g := &graph{Width: graphWidth, Height: graphHeight, XLabel: b.XLabel, YLabel: b.YLabel}
	var names []string
	var all [][]graphPoint
	low, high := graphPoint{math.Inf(1), math.Inf(1)}, graphPoint{math.Inf(-1), math.Inf(-1)}
	for _, t := range b.Trajectories {
		points := graphPoints(t.Points)
		if len(points) < 2 {
			g.addEmpty(t)
			continue
		}
		for _, p := range points {
			low = graphPoint{min(low.x, p.x), min(low.y, p.y)}
			high = graphPoint{max(high.x, p.x), max(high.y, p.y)}
		}
		names, all = append(names, cellText(t.Name)), append(all, points)
	}
	if len(all) == 0 {
		return g
	}
	xs, ys := numberAxis(low.x, high.x), numberAxis(low.y, high.y)
	g.Left = max(0, len(all)-mostCurves)
	for n, points := range all[:len(all)-g.Left] {
		var text strings.Builder
		for _, p := range points {
			fmt.Fprintf(&text, "%.1f,%.1f ", graphWidth*share(p.x, xs.low, xs.high), graphHeight*(1-share(p.y, ys.low, ys.high)))
		}
		g.Curves = append(g.Curves, curve{names[n], text.String(), n})
	}
	g.Of = fmt.Sprintf("Curves of %s over %s, from %s to %s, of values from %s to %s",
		cmp.Or(g.YLabel, "values"), cmp.Or(g.XLabel, "numbers"), number(low.x), number(high.x), number(low.y), number(high.y))
	g.XTicks, g.YTicks = places(few(xs.Ticks), false), places(ys.Ticks, true)
	return g
}

// graphPoints are the points of a file, without lines that have no numbers.
func graphPoints(lines [][]string) []graphPoint {
	var points []graphPoint
	for i, columns := range lines[:min(len(lines), mostPoints)] {
		p := graphPoint{x: float64(i)}
		var err error
		if len(columns) > 1 {
			p.x, err = strconv.ParseFloat(strings.TrimSpace(columns[len(columns)-2]), 64)
		}
		if len(columns) == 0 || err != nil {
			continue
		}
		p.y, err = strconv.ParseFloat(strings.TrimSpace(columns[len(columns)-1]), 64)
		if err != nil || math.IsNaN(p.x+p.y) || math.IsInf(p.x, 0) || math.IsInf(p.y, 0) {
			continue
		}
		points = append(points, p)
	}
	return points
}

// addEmpty notes a file of which there is nothing to draw.
func (g *graph) addEmpty(t client.Trajectory) {
	if len(g.Empty) == mostCurves {
		g.EmptyLeft++
		return
	}
	subpath := strings.Trim(t.Path, "/")
	why := "it has fewer than two lines with numbers"
	if t.Points == nil {
		why = "no such file, or an empty one"
	}
	title := strings.TrimSpace(preview.Shortened(cellText(t.Name)) + " /" + subpath)
	g.Empty = append(g.Empty, emptyFile{termtext.OneLine(title), filesAddress(t.UUID, subpath), why})
}

// numberAxis is an axis between two numbers.
func numberAxis(low, high float64) axis {
	a := axis{low: low, high: high}
	a.setNumbers()
	return a
}

// few are the first tick, the last one and at most two between them, for which a narrow picture has room.
func few(ticks []tick) []tick {
	last := len(ticks) - 1
	for step := 1; step <= last; step++ {
		if last%step != 0 || last/step > 3 {
			continue
		}
		var some []tick
		for i := 0; i <= last; i += step {
			some = append(some, ticks[i])
		}
		return some
	}
	return ticks
}

// places are ticks in a picture.
func places(ticks []tick, upwards bool) []place {
	var list []place
	for _, t := range ticks {
		p := place{t.Label, coordinate(100*t.At) + "%", "middle"}
		switch {
		case upwards:
			p.At, p.Anchor = coordinate(100*(1-t.At))+"%", "end"
		case t.At == 0:
			p.Anchor = "start"
		case t.At == 1:
			p.Anchor = "end"
		}
		list = append(list, p)
	}
	return list
}

// share is the place of x between two bounds, from 0 to 1.
func share(x, low, high float64) float64 {
	if s := (x/2 - low/2) / (high/2 - low/2); high > low && !math.IsNaN(s) {
		return s
	}
	return 0.5
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
