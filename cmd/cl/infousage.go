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
	specs, err := expandSpecs(specs)
	if err != nil {
		return err
	}
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, specs)
	if err != nil {
		return err
	}
	views := []usageInfo{}
	for _, uuid := range uuids {
		u, err := at.Usage(ctx, uuid)
		if err != nil {
			return onlyClServer(err, at, "it does not keep what runs use over time")
		}
		views = append(views, usageInfo{uuid, u})
	}
	if c.asJSON {
		return c.printJSON(views)
	}
	for i, v := range views {
		if len(views) > 1 {
			if err := c.print(strings.Repeat("\n", min(i, 1)), v.UUID); err != nil {
				return err
			}
		}
		if err := c.drawUsage(v.Usage); err != nil {
			return err
		}
	}
	return nil
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
	for _, m := range usageMeasures() {
		if chart, ok := m.chart(u, width, style); ok {
			lines = append(append(lines, ""), chart.Lines()...)
		}
	}
	if _, err := io.WriteString(termtext.Raw(c.Stdout), strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// usageMeasure is one of the measures that are drawn.
type usageMeasure struct {
	name  string
	scale float64
	of    func(codalab.UsagePoint) *float64
}

func usageMeasures() []usageMeasure {
	const gib = 1 << 30
	return []usageMeasure{
		{"CPUs", 1, func(p codalab.UsagePoint) *float64 { return p.CPUs }},
		{"memory in GiB", gib, func(p codalab.UsagePoint) *float64 { return p.MemoryMax }},
		{"GPUs, busy in %", .01, func(p codalab.UsagePoint) *float64 { return p.GPUUsage }},
		{"GPU memory in GiB", gib, func(p codalab.UsagePoint) *float64 { return p.GPUMemoryMax }},
	}
}

// chart draws a measure over the minutes since the begin; false if nobody has measured it.
func (m usageMeasure) chart(u codalab.Usage, width int, style plot.Style) (plot.Chart, bool) {
	const height = 10
	if m.of(u.Whole) == nil {
		return plot.Chart{}, false
	}
	var points []curve.Point
	for _, p := range u.Points {
		if y := m.of(p); y != nil {
			points = append(points, curve.Point{X: (p.Time - u.Whole.Time) / 60, Y: *y / m.scale})
		}
	}
	return plot.Chart{Title: m.name + " over minutes", Width: width, Height: height, Style: style, Series: []plot.Series{{Points: points}}}, true
}
