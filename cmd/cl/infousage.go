package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cl-slurm/cl-slurm/cmd/internal/plot"
	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/curve"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// usageInfo is the use of a bundle over time in JSON.
type usageInfo struct {
	UUID  string        `json:"uuid"`
	Usage codalab.Usage `json:"usage"`
}

// showUsages prints how runs used processors, memory and GPUs over time.
func (c *cli) showUsages(ctx context.Context, worksheet string, specs []string) error {
	return showEach(ctx, c, worksheet, specs, func(at *workspace, uuid string) (usageInfo, error) {
		u, err := at.Usage(ctx, uuid)
		return usageInfo{uuid, u}, onlyClServer(err, at, "it does not keep what runs use over time")
	}, func(v usageInfo) error { return c.drawUsage(v.Usage) })
}

// drawUsage prints the sentence about a run's use, and draws each measure.
func (c *cli) drawUsage(u codalab.Usage) error {
	if u.Sentence() == "" {
		return c.print("Nothing is measured: the command has not run, or its worker does not tell.")
	}
	lines := []string{strings.TrimSpace(u.Sentence() + " " + u.Hint())}
	t, terminal := repaint.OnTerminal(c.Stdout, c.Getenv)
	width := plotWidth
	if terminal {
		width, _ = t.Size()
	}
	style := (&plotter{cli: c}).style(terminal)
	for _, m := range codalab.UsageMeasures() {
		if chart, ok := usageChart(m, u, width, style); ok {
			lines = append(append(lines, ""), chart.Lines()...)
		}
	}
	if _, err := io.WriteString(termtext.Raw(c.Stdout), strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// usageChart draws a measure over the minutes since the begin; false if nobody has measured it.
func usageChart(m codalab.UsageMeasure, u codalab.Usage, width int, style plot.Style) (plot.Chart, bool) {
	const height = 10
	of := func(p codalab.UsagePoint) *float64 {
		mean, most := m.Of(p)
		if m.Peaks {
			return most
		}
		return mean
	}
	if of(u.Whole) == nil {
		return plot.Chart{}, false
	}
	var points []curve.Point
	for _, p := range u.Points {
		if y := of(p); y != nil {
			points = append(points, curve.Point{X: (p.Time - u.Whole.Time) / 60, Y: *y / m.Unit})
		}
	}
	return plot.Chart{Title: m.Name + " over minutes", Width: width, Height: height, Style: style, Series: []plot.Series{{Points: points}}}, true
}
