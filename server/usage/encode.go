package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// stored is the form in which the database has a Run. Its columns have whole numbers, one of each section, so that a series
// takes a few kilobytes. A measure that no section has has no columns.
type stored struct {
	Start  float64 `json:"start"`
	End    float64 `json:"end"`
	Length float64 `json:"length"`
	Ran    float64 `json:"ran"`
	CPU    float64 `json:"cpu"`
	// Milliseconds are those of each section in which the command ran.
	Milliseconds []int64           `json:"ms"`
	Mean         [measures][]int64 `json:"mean"`
	Most         [measures][]int64 `json:"most"`
}

// units are the units of the columns: a thousandth of a processor, a KiB, and a thousandth of the time.
func units() values { return values{1e-3, 1024, 1e-3, 1024} }

// encode returns the form in which the database has the run.
func (r *Run) encode() (string, error) {
	s := stored{Start: r.series.start, End: r.series.end, Length: r.series.length, Ran: r.ran, CPU: r.cpu}
	all := r.series.whole()
	for _, one := range r.series.sections {
		s.Milliseconds = append(s.Milliseconds, int64(math.Round(one.seconds*1e3)))
		for m, unit := range units() {
			if all.mean[m] != unknown {
				s.Mean[m], s.Most[m] = append(s.Mean[m], inUnits(one.mean[m], unit)), append(s.Most[m], inUnits(one.most[m], unit))
			}
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode usage: %w", err)
	}
	return string(text), nil
}

func inUnits(n, unit float64) int64 {
	if n == unknown {
		return unknown
	}
	return int64(math.Round(n / unit))
}

var errForm = errors.New("it is no series of usage")

// decode reads what encode has returned. An empty text is a run of which nothing is known.
func decode(text string) (Run, error) {
	if text == "" {
		return Run{}, nil
	}
	var s stored
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Run{}, fmt.Errorf("decode usage: %w", err)
	}
	n := len(s.Milliseconds)
	if n == 0 || n > mostSections || s.Length < firstLength || s.Start < 0 || s.Start+float64(n)*s.Length < s.End {
		return Run{}, errForm
	}
	r := Run{series: series{start: s.Start, end: s.End, length: s.Length, sections: make([]section, n)}, ran: s.Ran, cpu: s.CPU}
	for i := range r.series.sections {
		r.series.sections[i] = gap()
		r.series.sections[i].seconds = float64(s.Milliseconds[i]) / 1e3
	}
	for m, unit := range units() {
		if len(s.Mean[m]) == 0 && len(s.Most[m]) == 0 {
			continue
		}
		if len(s.Mean[m]) != n || len(s.Most[m]) != n {
			return Run{}, errForm
		}
		for i := range r.series.sections {
			if s.Mean[m][i] != unknown {
				r.series.sections[i].mean[m], r.series.sections[i].most[m] = float64(s.Mean[m][i])*unit, float64(s.Most[m][i])*unit
			}
		}
	}
	return r, nil
}
