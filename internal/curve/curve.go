// Package curve keeps the points of a curve, of which any number may come: a bounded number of them, and of those the
// lowest and the highest of each section, so that no peak is lost. It is pure.
package curve

import (
	"cmp"
	"math"
	"slices"
)

// Point is a point of a series. A Y that is no finite number is a gap, which no line crosses.
type Point struct{ X, Y float64 }

// IsGap reports whether the point is a gap.
func (p Point) IsGap() bool { return math.IsNaN(p.Y) || math.IsInf(p.Y, 0) }

// The most points that a Thinned keeps, and the sections into which it divides them when there are more.
const (
	mostPoints = 4096
	sections   = 1024
)

// Thinned are the points of a series. The zero value has none.
type Thinned struct {
	points []Point
	thin   bool
}

// Add adds a point, whose X is finite. Points may come in any order.
func (t *Thinned) Add(p Point) {
	if t.points = append(t.points, p); len(t.points) > mostPoints {
		t.points, t.thin = thinned(t.points, sections), true
	}
}

// Points returns the points in the order of X, and of those with the same X in that of their coming.
func (t *Thinned) Points() []Point {
	sortPoints(t.points)
	return slices.Clone(t.points)
}

// AtMost is Points, thinned to about n of them: the lowest and the highest of each of n/2 sections.
func (t *Thinned) AtMost(n int) []Point {
	if points := t.Points(); len(points) > n && len(points) > 2 {
		return thinned(points, n/2)
	}
	return t.Points()
}

// HasNumber reports whether a point is no gap.
func (t *Thinned) HasNumber() bool {
	return slices.ContainsFunc(t.points, func(p Point) bool { return !p.IsGap() })
}

// IsThin reports whether points were left out.
func (t *Thinned) IsThin() bool { return t.thin }

func sortPoints(points []Point) {
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
}

// thinned keeps of each of n sections of X the lowest and the highest point, and a gap of a section without a number. The
// first and the last point stay, so that the X axis does.
func thinned(points []Point, n int) []Point {
	sortPoints(points)
	at := Sections(points[0].X, points[len(points)-1].X, n)
	kept := append(make([]Point, 0, 2*n+2), points[0])
	last := points[len(points)-1]
	points = points[1 : len(points)-1]
	for len(points) > 0 {
		section := at(points[0].X)
		size := 1
		for size < len(points) && at(points[size].X) == section {
			size++
		}
		kept = append(kept, extremes(points[:size])...)
		points = points[size:]
	}
	return append(kept, last)
}

// extremes returns the lowest and the highest point, in their order; a gap if there is no number.
func extremes(points []Point) []Point {
	low, high := -1, -1
	for i, p := range points {
		if p.IsGap() {
			continue
		}
		if low < 0 || p.Y < points[low].Y {
			low = i
		}
		if high < 0 || p.Y > points[high].Y {
			high = i
		}
	}
	switch {
	case low < 0:
		return points[:1]
	case low == high:
		return points[low : low+1]
	}
	return []Point{points[min(low, high)], points[max(low, high)]}
}

// Sections returns a function that tells in which of n equal sections from a to b a number lies; the first or the last
// one for a number outside.
func Sections(a, b float64, n int) func(float64) int {
	return func(x float64) int { return min(int(min(max(Share(x, a, b), 0), 1)*float64(n)), n-1) }
}

// Share returns where x lies between a and b, from 0 to 1; 0 if they are one number. The range of two finite numbers may be
// no finite one.
func Share(x, a, b float64) float64 {
	if a/2 == b/2 { // the least of all numbers have no halves
		return 0
	}
	return (x/2 - a/2) / (b/2 - a/2)
}

// Gap returns a gap.
func Gap(x float64) Point { return Point{x, math.NaN()} }
