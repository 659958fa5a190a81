package curve_test

import (
	"math"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/curve"
)

func TestThinnedSeriesKeepsItsPeaksAndItsEnds(t *testing.T) {
	t.Parallel()
	var s curve.Thinned
	for i := range 300_000 {
		y := 1.0
		switch {
		case i == 123_456:
			y = 7
		case i == 234_567:
			y = -7
		case i >= 100_000 && i < 110_000:
			y = math.NaN()
		}
		s.Add(curve.Point{X: float64(i), Y: y})
	}
	got := s.Points()
	if len(got) > 5000 || !s.IsThin() {
		t.Errorf("%d points are kept", len(got))
	}
	at := map[float64]float64{}
	gaps := 0
	for i, p := range got {
		if i > 0 && p.X < got[i-1].X {
			t.Fatal("the points are in no order")
		}
		if at[p.X] = p.Y; math.IsNaN(p.Y) {
			gaps++
		}
	}
	if at[123_456] != 7 || at[234_567] != -7 || got[0].X != 0 || got[len(got)-1].X != 299_999 {
		t.Errorf("a peak or an end is lost: %v, %v, %v", at[123_456], at[234_567], got[len(got)-1])
	}
	if gaps == 0 {
		t.Error("the gap is lost")
	}
}

func TestFewPointsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	var s curve.Thinned
	for _, p := range []curve.Point{{X: 3, Y: 1}, {X: 1, Y: 2}, {X: 2, Y: math.NaN()}, {X: 1, Y: 4}} {
		s.Add(p)
	}
	if got := s.Points(); got[0] != (curve.Point{X: 1, Y: 2}) || got[1] != (curve.Point{X: 1, Y: 4}) || got[3] != (curve.Point{X: 3, Y: 1}) || s.IsThin() || !s.HasNumber() {
		t.Errorf("%v", got)
	}
	var none curve.Thinned
	if none.Add(curve.Gap(1)); none.HasNumber() {
		t.Error("a gap is a number")
	}
}
