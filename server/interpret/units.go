package interpret

import (
	"fmt"
	"math"
	"time"
)

// largest bounds the numbers that are formatted as whole ones. Python's integers have no bound.
const largest = 1 << 62

// sizeText prints bytes for people; nil from 1024 TiB on (codalab/lib/formatting.py: size_str, with
// include_bytes).
func sizeText(bytes float64) (any, bool) {
	if math.IsInf(bytes, -1) || math.IsNaN(bytes) {
		return nil, math.IsNaN(bytes)
	}
	for _, unit := range []string{" bytes", "k", "m", "g", "t"} {
		switch {
		case bytes < 100 && bytes != math.Trunc(bytes):
			return fmt.Sprintf("%.1f%s", bytes, unit), true
		case bytes < 1024:
			return wholeText(bytes) + unit, true
		}
		bytes /= 1024
	}
	return nil, true
}

// wholeText is a number without its fraction.
func wholeText(f float64) string {
	return fmt.Sprintf("%.0f", math.Trunc(f)+0) // +0 makes 0 of -0
}

// dateText prints a Unix time in UTC (codalab/lib/formatting.py: date_str, on a server whose clock is in
// UTC).
func dateText(seconds float64) (any, bool) {
	const firstYear, lastYear = -62135596800, 253402300800
	if !(seconds >= firstYear && seconds < lastYear) {
		return nil, false
	}
	whole := math.Floor(seconds)
	micros := int64(math.RoundToEven((seconds - whole) * 1e6))
	t := time.Unix(int64(whole), 0).Add(time.Duration(micros) * time.Microsecond).UTC()
	if t.Nanosecond() == 0 {
		return t.Format("2006-01-02 15:04:05"), true
	}
	return t.Format("2006-01-02 15:04:05.000000"), true
}

// durationText prints seconds with their two largest units (codalab/lib/formatting.py: duration_str).
func durationText(seconds float64) (any, bool) {
	if math.IsNaN(seconds) || math.Abs(seconds) > largest {
		return nil, false
	}
	parts := []struct {
		per    float64
		format string
	}{{60, "%sm%ss"}, {60, "%sh%sm"}, {24, "%sd%sh"}, {365, "%sy%sd"}}
	low, high := seconds, math.Floor(seconds/parts[0].per)
	if high == 0 {
		return fmt.Sprintf("%.1fs", seconds), true
	}
	for i, part := range parts {
		low -= high * part.per
		next := 0.0
		if i+1 < len(parts) {
			next = math.Floor(high / parts[i+1].per)
		}
		if next == 0 {
			return fmt.Sprintf(part.format, wholeText(high), wholeText(low)), true
		}
		low, high = high, next
	}
	return nil, false
}
