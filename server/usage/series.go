package usage

import (
	"math"
)

const (
	// mostSections is the number of sections of a series.
	mostSections = 240
	// firstLength is the length of the sections of a short series, in seconds.
	firstLength = 5
)

// The measures of a section.
const (
	cpus      = iota // processors in use
	memory           // bytes
	gpus             // share of the time in which the GPUs worked, from 0 to 1, as the mean of all
	gpuMemory        // bytes of all GPUs
	measures
)

// unknown is a value that was not measured.
const unknown = -1

// values are one value of each measure. Their seven digits are enough for a chart, and a Keeper has many of them.
type values [measures]float32

// section is a part of the time of a series.
type section struct {
	// seconds is the part of it in which the command ran; 0 for a gap.
	seconds float32
	// mean and most are unknown where nothing was measured.
	mean, most values
}

func gap() section {
	s := section{}
	for m := range measures {
		s.mean[m], s.most[m] = unknown, unknown
	}
	return s
}

// join makes the section one with another.
func (s *section) join(other *section) {
	s.seconds += other.seconds
	for m := range measures {
		s.most[m] = max(s.most[m], other.most[m])
		switch {
		case other.mean[m] == unknown:
		case s.mean[m] == unknown:
			s.mean[m] = other.mean[m]
		case s.seconds > 0:
			s.mean[m] += (other.mean[m] - s.mean[m]) * (other.seconds / s.seconds)
		}
	}
}

// series has the use of a run over time. Times are in Unix seconds.
type series struct {
	start, end float64
	// length is that of each section, in seconds.
	length   float64
	sections []section
}

// add adds values that were measured between two times, of which the first is not before the end of the series.
func (s *series) add(from, to float64, v values) {
	if len(s.sections) == 0 {
		s.start, s.length = math.Floor(from), firstLength
	}
	for to > s.start+mostSections*s.length {
		s.double()
	}
	s.end = to
	for from < to {
		at := min(int((from-s.start)/s.length), mostSections-1)
		for len(s.sections) <= at {
			s.sections = append(s.sections, gap())
		}
		until := to
		if next := s.start + float64(at+1)*s.length; next > from { // it is, but for the last digits of a float64
			until = min(to, next)
		}
		s.sections[at].join(&section{seconds: float32(until - from), mean: v, most: v})
		from = until
	}
}

// double makes each two neighbours one section.
func (s *series) double() {
	s.length *= 2
	half := s.sections[:0]
	for i := 0; i < len(s.sections); i += 2 {
		if i+1 < len(s.sections) {
			s.sections[i].join(&s.sections[i+1])
		}
		half = append(half, s.sections[i])
	}
	s.sections = half
}

// whole is the series as one section.
func (s *series) whole() section {
	all := gap()
	for i := range s.sections {
		all.join(&s.sections[i])
	}
	return all
}
