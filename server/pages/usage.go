package pages

import (
	"encoding/json"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// usageView shows the use of processors, memory and GPUs of a run over time.
type usageView struct {
	UUID string
	// Sentence and Hint are those of codalab.Usage; Sentence is empty if nothing is measured.
	Sentence, Hint string
	Charts         charts
	// Live is set while the run goes on.
	Live bool
}

// charts are curves for curves.js.
type charts struct {
	// X is the unit of time.
	X      string  `json:"x"`
	Curves []chart `json:"curves"`
}

// chart is a curve with further lines in the same picture. A nil value is a gap.
type chart struct {
	Name string      `json:"name"`
	X    []float64   `json:"x"`
	Y    []*float64  `json:"y"`
	More []chartLine `json:"more"`
}

type chartLine struct {
	Name string     `json:"name"`
	Y    []*float64 `json:"y"`
}

// usage returns the use of a run over time; nil for a bundle that has none to show.
func (p *Pages) usage(v *visit, b bundlePage) *usageView {
	if !b.Run() {
		return nil
	}
	u, err := v.api.Usage(v.Context(), b.UUID)
	if err != nil { // the rest of the page is there nevertheless
		return nil
	}
	view := &usageView{UUID: b.UUID, Sentence: u.Sentence(), Hint: u.Hint(), Charts: newCharts(u), Live: !b.State.Final()}
	if view.Sentence == "" && !view.Live {
		return nil
	}
	return view
}

// sendUsage sends the use of a run over time, as far as it is known.
func (p *Pages) sendUsage(v *visit, s *stream, b bundlePage) error {
	view := p.usage(v, b)
	if view == nil || view.Sentence == "" {
		return nil
	}
	data, err := json.Marshal(view.Charts)
	if err == nil {
		err = s.send("usage-charts", string(data))
	}
	if err != nil {
		return err
	}
	text, err := p.part("bundle", "usage-words", view)
	if err != nil {
		return err
	}
	return s.send("usage", text)
}

// newCharts draws each measure of which there is a value.
func newCharts(u codalab.Usage) charts {
	unit, seconds := timeUnit(u)
	c := charts{X: unit, Curves: []chart{}}
	for _, m := range codalab.UsageMeasures() {
		if mean, _ := m.Of(u.Whole); mean != nil {
			c.Curves = append(c.Curves, newChart(m, u, seconds))
		}
	}
	return c
}

// timeUnit is the unit in which the time of a run is drawn, and its seconds.
func timeUnit(u codalab.Usage) (unit string, seconds float64) {
	last := 0.0
	if n := len(u.Points); n > 0 {
		last = u.Points[n-1].Time - u.Points[0].Time
	}
	switch {
	case last < 300:
		return "seconds", 1
	case last < 2*3600:
		return "minutes", 60
	case last < 2*24*3600:
		return "hours", 3600
	}
	return "days", 24 * 3600
}

// newChart draws a measure, with its highest values and its limit.
func newChart(m codalab.UsageMeasure, u codalab.Usage, seconds float64) chart {
	scaled := func(n *float64) *float64 {
		if n == nil {
			return nil
		}
		s := *n / m.Unit
		return &s
	}
	limit := m.Limit(u.Limits) / m.Unit
	c, highest, bound := chart{Name: m.Name}, chartLine{Name: "highest"}, chartLine{Name: "limit"}
	add := func(at float64, one codalab.UsagePoint) {
		mean, most := m.Of(one)
		c.X, c.Y, highest.Y = append(c.X, at/seconds), append(c.Y, scaled(mean)), append(highest.Y, scaled(most))
		bound.Y = append(bound.Y, &limit)
	}
	length := float64(u.SectionSeconds)
	for i, one := range u.Points {
		at := one.Time - u.Points[0].Time + length/2
		if i > 0 && one.Time > u.Points[i-1].Time+1.5*length {
			add(at-length, codalab.UsagePoint{}) // a gap
		}
		add(at, one)
	}
	c.More = []chartLine{highest}
	if limit > 0 {
		c.More = append(c.More, bound)
	}
	return c
}
