package usage

import (
	"math"
	"testing"
)

// only are values of processors alone.
func only(n float32) values { return values{n, unknown, unknown, unknown} }

func TestSeriesStaysBounded(t *testing.T) {
	t.Parallel()
	const hour, day = 3600., 24 * 3600.
	for _, c := range []struct {
		name            string
		lasts, every    float64
		length          float64
		atLeast, atMost int
	}{
		{"two minutes", 120, 5, 5, 24, 24},
		{"twenty minutes", 1200, 20, 5, 240, 240},
		{"a little more", 1210, 10, 10, 121, 121},
		{"a day", day, 60, 640, 130, 140},
		{"two weeks", 14 * day, 60, 5120, 230, 240},
		{"one report after two weeks", 14 * day, 14 * day, 5120, 230, 240},
		{"a clock that jumps by a thousand years", 1000 * 365 * day, 365000 * day, 5 * (1 << 25), 180, 240},
		{"an hour, each second", hour, 1, 20, 180, 180},
	} {
		var s series
		const start = 1.8e9
		for at := start; at < start+c.lasts; at += c.every {
			s.add(at, at+c.every, only(2))
		}
		all := s.whole()
		if n := len(s.sections); s.length != c.length || n < c.atLeast || n > c.atMost {
			t.Errorf("%s: %d sections of %v s", c.name, n, s.length)
		}
		if math.Abs(float64(all.seconds)-c.lasts) > 1e-6*c.lasts || math.Abs(float64(all.mean[cpus])-2) > 1e-9 || all.most[cpus] != 2 || all.mean[memory] != unknown {
			t.Errorf("%s: in all %+v", c.name, all)
		}
	}
}

func TestNeighboursKeepMeansAndHighestValues(t *testing.T) {
	t.Parallel()
	var s series
	s.add(0, 5, only(1))
	s.add(5, 10, values{4, 100, .5, 7})
	s.add(20, 22, only(8)) // after a gap
	s.add(1200, 1201, only(0))
	if s.length != 10 || len(s.sections) != 121 {
		t.Fatalf("%d sections of %v s", len(s.sections), s.length)
	}
	if got, want := s.sections[0], (section{10, values{2.5, 100, .5, 7}, values{4, 100, .5, 7}}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := s.sections[1]; got != gap() {
		t.Errorf("a gap is %+v", got)
	}
	if got := s.sections[2]; got.seconds != 2 || got.mean[cpus] != 8 {
		t.Errorf("%+v", got)
	}
}
