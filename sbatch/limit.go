package sbatch

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// limitForm matches a time limit: days-hours[:minutes[:seconds]], minutes[:seconds], or hours:minutes:seconds.
var limitForm = regexp.MustCompile(`^(?:(\d{1,5})-(\d{1,4})(?::(\d{1,4})(?::(\d{1,4}))?)?|(\d{1,8})(?::(\d{1,8}))?(?::(\d{1,8}))?)$`)

// ParseLimit reads a time limit as sbatch does (sbatch(1): --time) and as Slurm prints it; 0 means none.
func ParseLimit(text string) (time.Duration, error) {
	if strings.EqualFold(text, "UNLIMITED") || strings.EqualFold(text, "INFINITE") {
		return 0, nil
	}
	m := limitForm.FindStringSubmatch(text)
	if m == nil {
		return 0, errors.New("want minutes, hours:minutes:seconds, days-hours or days-hours:minutes:seconds, such as 10-0")
	}
	const day = 24 * time.Hour
	switch {
	case m[1] != "":
		return span(m[1:5], day, time.Hour, time.Minute, time.Second), nil
	case m[7] != "":
		return span(m[5:8], time.Hour, time.Minute, time.Second), nil
	}
	return span(m[5:7], time.Minute, time.Second), nil
}

// span adds numbers of units. An absent number is 0. A sum of more than 292 years is the longest duration.
func span(numbers []string, units ...time.Duration) (d time.Duration) {
	for i, unit := range units {
		n, _ := strconv.Atoi(numbers[i]) // digits, or nothing
		if time.Duration(n) > (math.MaxInt64-d)/unit {
			return math.MaxInt64
		}
		d += time.Duration(n) * unit
	}
	return d
}
