package usage

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The database has a Run as lines of whole numbers, each followed by a comma:
//
//   - the times and counters of the run in milliseconds: start, end and length of the series, ran, cpu;
//   - the milliseconds of each section;
//   - for each measure, the means of the sections, and on the next line the highest values, in units of the measure. Both lines
//     are empty if no section has any.
//
// A number is the difference from the one before it in its line; nothing stands for 0. Neighbours are alike, so a series takes a
// few kilobytes.
const (
	lines = 2 + 2*measures
	// mostNumber bounds the sums of the differences.
	mostNumber = 1e15
)

// perUnit is the number of units of a measure in one, or of bytes: the units are a thousandth of a processor, a KiB, a
// thousandth of the time, and a KiB.
func perUnit(m int) float64 { return [measures]float64{1e3, 1. / 1024, 1e3, 1. / 1024}[m] }

func inUnits(n float32, m int) int64 {
	if n == unknown {
		return unknown
	}
	return int64(math.Round(float64(n) * perUnit(m)))
}

func ofUnits(n int64, m int) float32 { return float32(float64(n) / perUnit(m)) }

func milliseconds(seconds float64) int64 { return int64(math.Round(seconds * 1e3)) }

// encode returns the form in which the database has the run.
func (r *Run) encode() string {
	s := &r.series
	text := make([]byte, 0, 16*len(s.sections)+100)
	last := int64(0)
	for _, seconds := range [...]float64{s.start, s.end, s.length, r.ran, r.cpu} {
		n := milliseconds(seconds)
		text, last = appendNumber(text, n-last), n
	}
	text = append(text, '\n')
	text = appendColumn(text, s.sections, func(one *section) int64 { return milliseconds(float64(one.seconds)) })
	all := s.whole()
	for m := range measures {
		if all.mean[m] == unknown {
			text = append(text, "\n\n"...)
			continue
		}
		text = append(text, '\n')
		text = appendColumn(text, s.sections, func(one *section) int64 { return inUnits(one.mean[m], m) })
		text = append(text, '\n')
		text = appendColumn(text, s.sections, func(one *section) int64 { return inUnits(one.most[m], m) })
	}
	return string(text)
}

// appendColumn appends a number of each section.
func appendColumn(text []byte, sections []section, of func(*section) int64) []byte {
	last := int64(0)
	for i := range sections {
		n := of(&sections[i])
		text, last = appendNumber(text, n-last), n
	}
	return text
}

func appendNumber(text []byte, n int64) []byte {
	if n != 0 {
		text = strconv.AppendInt(text, n, 10)
	}
	return append(text, ',')
}

var errForm = errors.New("it is no series of usage")

// decode reads what encode has returned. An empty text is a run of which nothing is known.
func decode(text string) (Run, error) {
	if text == "" {
		return Run{}, nil
	}
	columns := make([][]int64, 0, lines)
	for line := range strings.SplitSeq(text, "\n") {
		c, err := column(line)
		if err != nil || len(columns) == lines {
			return Run{}, errForm
		}
		columns = append(columns, c)
	}
	if len(columns) < lines || len(columns[0]) != 5 {
		return Run{}, errForm
	}
	head := [5]float64{}
	for i, n := range columns[0] {
		head[i] = float64(n) / 1e3
	}
	n := len(columns[1])
	r := Run{series: series{start: head[0], end: head[1], length: head[2], sections: make([]section, n)}, ran: head[3], cpu: head[4]}
	if n == 0 || n > mostSections || r.series.length < firstLength || r.series.start+float64(n)*r.series.length < r.series.end {
		return Run{}, errForm
	}
	for i := range r.series.sections {
		r.series.sections[i] = gap()
		r.series.sections[i].seconds = float32(columns[1][i]) / 1e3
	}
	for m := range measures {
		mean, most := columns[2+2*m], columns[3+2*m]
		if len(mean) == 0 && len(most) == 0 {
			continue
		}
		if len(mean) != n || len(most) != n {
			return Run{}, errForm
		}
		for i := range r.series.sections {
			if mean[i] != unknown {
				r.series.sections[i].mean[m], r.series.sections[i].most[m] = ofUnits(mean[i], m), ofUnits(most[i], m)
			}
		}
	}
	return r, nil
}

// column returns the numbers of a line.
func column(line string) ([]int64, error) {
	var numbers []int64
	last := int64(0)
	for line != "" {
		var field string
		var ended bool
		if field, line, ended = strings.Cut(line, ","); !ended {
			return nil, errForm
		}
		if field != "" {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read a number: %w", err)
			}
			last += n
		}
		if last < unknown || last > mostNumber {
			return nil, errForm
		}
		numbers = append(numbers, last)
	}
	return numbers, nil
}
