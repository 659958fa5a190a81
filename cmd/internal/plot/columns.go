package plot

import (
	"math"

	"github.com/cl-slurm/cl-slurm/internal/curve"
)

// columnsOf returns the height of a series in each of n columns, from 0 to height; NaN where it has none. Points are
// joined by straight lines unless a gap is between them. Of several points in a column, the one that is farthest from the
// column before is shown, so that a noisy series fills the room between its lowest and highest numbers.
func columnsOf(points []curve.Point, b bounds, n int, height float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.NaN()
	}
	at := curve.Sections(b.x0, b.x1, n)
	last, joined := -1, false // the last column with a point; whether a line leads on from it
	for len(points) > 0 {
		column := at(points[0].X)
		size := 0
		previous := math.NaN()
		if last >= 0 {
			previous = out[last]
		}
		for ; size < len(points) && at(points[size].X) == column; size++ {
			if points[size].IsGap() { // within a column it is too narrow to be seen
				continue
			}
			y := curve.Share(points[size].Y, b.y0, b.y1) * height
			if math.IsNaN(out[column]) || math.Abs(y-previous) > math.Abs(out[column]-previous) {
				out[column] = y
			}
		}
		points = points[size:]
		switch {
		case math.IsNaN(out[column]):
			joined = false
			continue
		case joined:
			join(out, last, column)
		}
		last, joined = column, true
	}
	return out
}

// join draws a straight line between two columns.
func join(out []float64, from, to int) {
	for i := from + 1; i < to; i++ {
		out[i] = between(float64(i-from)/float64(to-from), out[from], out[to])
	}
}
