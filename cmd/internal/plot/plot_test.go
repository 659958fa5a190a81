package plot_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/columns"
	"github.com/cl-slurm/cl-slurm/cmd/internal/plot"
	"github.com/cl-slurm/cl-slurm/internal/curve"
)

func points(ys ...float64) (list []curve.Point) {
	for i, y := range ys {
		list = append(list, curve.Point{X: float64(i + 1), Y: y})
	}
	return list
}

// noise is a curve that swings more and more.
func noise() (list []curve.Point) {
	for i := range 500 {
		x := float64(i)
		list = append(list, curve.Point{X: x, Y: math.Sin(x*x/9000) * x})
	}
	return list
}

func TestChartIsDrawnAsItShouldBe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		chart plot.Chart
		want  string
	}{
		"a gap in ASCII": {plot.Chart{Title: "loss", Series: []plot.Series{{Name: "a", Points: points(1, 2, 3, math.NaN(), 5, 4)}}, Width: 30, Height: 8, Style: plot.ASCII}, `
loss
  5|                   ---+
  4|                      +--
  3|       +---
  2|  +----+
  1|--+
   ++------------------------+
    1                        6`},
		"several in ASCII": {plot.Chart{Title: "loss", Series: []plot.Series{{Name: "a", Points: points(0, 1)}, {Name: "b", Points: points(1, 0)}}, Width: 20, Height: 9, Style: plot.ASCII}, `
loss
     1 |++      ***
 0.667 | +++++***
 0.333 | ****++++
     0 |**      +++
       ++----------+
        1          2
  * a
  + b`},
		"a number alone": {plot.Chart{Title: "loss", Series: []plot.Series{{Name: "a", Points: points(3)}}, Width: 20, Height: 6}, `
loss
  4┤
  3┤      ╶╴
  2┤
   └┬──────────────┬
    0              2`},
		"a logarithm": {plot.Chart{Title: "loss", Series: []plot.Series{{Name: "a", Points: points(100, 0, 1)}}, Width: 20, Height: 6, Log: true}, `
loss
 100 ┼╴
  10 ┤
   1 ┤           ╶╴
     └┬────────────┬
      1            3`},
		"a gap in Braille": {plot.Chart{Title: "loss", Series: []plot.Series{{Name: "a", Points: points(1, 2, 3, math.NaN(), 5, 4)}}, Width: 30, Height: 8, Style: plot.Braille}, `
loss
  5┤                    ⢤⣀
  4┤                     ⠈⠙⠲⠤
  3┤        ⢀⣠⠄
  2┤   ⢀⣠⠤⠖⠋⠉
  1┤⠤⠖⠋⠉
   └┬────────────────────────┬
    1                        6`},
		"crossing in Braille": {plot.Chart{Title: "loss", Series: []plot.Series{{Name: "a", Points: points(0, 1)}, {Name: "b", Points: points(1, 0)}}, Width: 20, Height: 9, Style: plot.Braille, Colour: true}, "\n" +
			"loss\n" +
			"     1 ┤\x1b[31m⣄⡀       \x1b[32m⢀⣠\x1b[0m\n" +
			" 0.667 ┤ \x1b[31m⠉⠓⢦⣀ \x1b[32m⣀⡴⠚⠉\x1b[0m\n" +
			" 0.333 ┤  \x1b[32m⢀⣠\x1b[31m⠞⠛⠳⣄⡀\x1b[0m\n" +
			"     0 ┤\x1b[32m⠴⠚⠉     \x1b[31m⠉⠓⠦\x1b[0m\n" +
			"       └┬──────────┬\n" +
			"        1          2\n" +
			"  \x1b[32m─\x1b[0m a\n" +
			"  \x1b[31m─\x1b[0m b"},
		"several without colours": {plot.Chart{Title: "loss", Series: []plot.Series{{Name: "a", Points: points(0, 1)}, {Name: "b", Points: points(1, 0)}}, Width: 20, Height: 9, Style: plot.Braille}, `
loss
     1 ┼++      ***
 0.667 ┤ +++++***
 0.333 ┤ ****++++
     0 ┼**      +++
       └┬──────────┬
        1          2
  * a
  + b`},
		"noise in Braille": {plot.Chart{Title: "loss", Series: []plot.Series{{Name: "a", Points: noise()}}, Width: 40, Height: 10, Style: plot.Braille}, `
loss
  490 ┤                              ⡄
  331 ┤                     ⢠⡄  ⢀⣷  ⢰⢳
  173 ┤       ⣀⡀      ⡴⠛⡆  ⢀⡏⢹  ⢸⠈⡇ ⢸
   15 ┤⠤⠤⠤⠤⠖⠚⠉⠁⠉⠳⡄   ⣸⠁ ⢹⡀ ⢸ ⠘⡆ ⡞ ⡇ ⡏
 -144 ┤          ⠙⢦⡀⣰⠃   ⣇ ⡏  ⣇⢀⡇ ⢹ ⡇
 -302 ┤            ⠉⠁    ⠘⠶⠃  ⢸⣸  ⢸⣸⠁
 -460 ┤                        ⠁   ⠟
      └┬──────────────────────────────┬
       0                             499`},
		"no number": {plot.Chart{Series: []plot.Series{{Points: points(math.NaN())}}, Width: 20, Height: 6}, "\n"},
	} {
		got := "\n" + strings.Join(test.chart.Lines(), "\n")
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", name, diff, got)
		}
	}
}

// A drawing is never wider than its terminal, and no number breaks it.
func TestEveryChartFitsItsTerminal(t *testing.T) {
	t.Parallel()
	shapes := map[string][]curve.Point{
		"huge": points(-math.MaxFloat64, math.MaxFloat64, 0), "tiny": points(5e-324, 1e-323, 0), "constant": points(1e300, 1e300), "close": points(1e9, 1e9+1e-6),
		"gap first": points(math.NaN(), 1, 2, 3), "gap far": {{X: 1, Y: 1}, {X: 2, Y: 2}, {X: 1e300, Y: math.NaN()}},
		"least":    {{X: 0, Y: 1}, {X: 5e-324, Y: 2}},
		"infinite": points(math.Inf(1), 1, math.Inf(-1)), "one": points(0), "far": {{X: -math.MaxFloat64, Y: 1}, {X: math.MaxFloat64, Y: 2}},
		"near": {{X: 1, Y: 1}, {X: 1 + 1e-15, Y: 2}}, "vertical": {{X: 1, Y: 1}, {X: 1, Y: 2}},
	}
	for name, list := range shapes {
		for width := 1; width < 90; width += 3 {
			for _, height := range []int{1, 5, 24} {
				c := plot.Chart{Title: "a title that is long", Series: []plot.Series{{Name: "学習率", Points: list}, {Name: "b", Points: points(1, 2)}}, Width: width, Height: height, Colour: width%2 == 0, Log: height == 5, Style: plot.Style(width / 3 % 3)}
				lines := c.Lines()
				for _, line := range lines {
					if columns.Width(line) > width {
						t.Fatalf("%s: a line of %d columns on %d: %q", name, columns.Width(line), width, line)
					}
				}
				if len(lines) > max(height, 7) {
					t.Errorf("%s: %d lines on %d", name, len(lines), height)
				}
			}
		}
	}
}

func FuzzChart(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 4.0, 30, 8)
	f.Fuzz(func(_ *testing.T, x1, y1, x2, y2 float64, width, height int) {
		if math.IsNaN(x1+x2) || math.IsInf(x1, 0) || math.IsInf(x2, 0) {
			return
		}
		var s curve.Thinned
		s.Add(curve.Point{X: x1, Y: y1})
		s.Add(curve.Point{X: x2, Y: y2})
		_ = plot.Chart{Series: []plot.Series{{Points: s.Points()}}, Width: width % 200, Height: height % 100, Style: plot.Braille}.Lines()
	})
}
