package pages

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// The size of a graph, in its own units, and the most curves and points of one.
const (
	graphWidth, graphHeight = 640, 240
	mostCurves              = 12
	mostPoints              = 2000
)

// graph is a picture of curves.
type graph struct {
	Width, Height int
	Curves        []curve
	// The bounds of the curves, as texts.
	MinX, MaxX, MinY, MaxY string
	// Left is the number of curves that are not shown.
	Left int
}

type curve struct {
	Name string
	// Points are those of an SVG polyline.
	Points string
	// Number counts from 0; it gives the colour.
	Number int
}

// newGraph draws the last two columns of the lines of files, or their only one over the line's number; nil if there is
// nothing to draw.
func newGraph(trajectories []client.Trajectory) *graph {
	type point struct{ x, y float64 }
	g := &graph{Width: graphWidth + 12, Height: graphHeight + 12} // with room for the ends of lines
	var names []string
	var all [][]point
	low, high := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, t := range trajectories {
		var points []point
		for i, columns := range t.Points[:min(len(t.Points), mostPoints)] {
			p := point{x: float64(i)}
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
			low = point{min(low.x, p.x), min(low.y, p.y)}
			high = point{max(high.x, p.x), max(high.y, p.y)}
			points = append(points, p)
		}
		if len(points) > 1 {
			names, all = append(names, cellText(t.Name)), append(all, points)
		}
	}
	if len(all) == 0 {
		return nil
	}
	g.Left = max(0, len(all)-mostCurves)
	for n, points := range all[:len(all)-g.Left] {
		var text strings.Builder
		for _, p := range points {
			fmt.Fprintf(&text, "%.1f,%.1f ", graphWidth*share(p.x, low.x, high.x), graphHeight*(1-share(p.y, low.y, high.y)))
		}
		g.Curves = append(g.Curves, curve{names[n], text.String(), n})
	}
	g.MinX, g.MaxX, g.MinY, g.MaxY = number(low.x), number(high.x), number(low.y), number(high.y)
	return g
}

// share is the place of x between two bounds, from 0 to 1.
func share(x, low, high float64) float64 {
	if s := (x/2 - low/2) / (high/2 - low/2); high > low && !math.IsNaN(s) {
		return s
	}
	return 0.5
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
