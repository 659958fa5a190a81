package codalab

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ParseSize reads a size as CodaLab writes it: a number, then nothing, "k", "m", "g" or "t"
// for powers of 1024, with an optional "b" after it, in either case. The result is in bytes
// (codalab/lib/formatting.py: parse_size).
func ParseSize(s string) (int64, error) {
	number, factor := unit(strings.TrimSuffix(strings.ToLower(s), "b"), map[byte]float64{
		'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30, 't': 1 << 40,
	})
	n, err := quantity(number, factor)
	if err != nil {
		return 0, fmt.Errorf("invalid size %q: want a number and one of k, m, g, t, such as 2g", s)
	}
	return int64(n), nil
}

// ParseDuration reads a duration as CodaLab writes it: a number, then nothing or "s" for
// seconds, "m", "h", "d" or "y" (365 days) (codalab/lib/formatting.py: parse_duration).
func ParseDuration(s string) (time.Duration, error) {
	number, factor := unit(strings.ToLower(s), map[byte]float64{
		's': 1, 'm': 60, 'h': 3600, 'd': 86400, 'y': 365 * 86400,
	})
	n, err := quantity(number, factor*float64(time.Second))
	if err != nil {
		return 0, fmt.Errorf("invalid time %q: want a number and one of s, m, h, d, y, such as 3h", s)
	}
	return time.Duration(n), nil
}

func unit(s string, factors map[byte]float64) (number string, factor float64) {
	if s != "" {
		if f, ok := factors[s[len(s)-1]]; ok {
			return s[:len(s)-1], f
		}
	}
	return s, 1
}

func quantity(number string, factor float64) (float64, error) {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("parse number: %w", err)
	}
	f *= factor
	// float64(MaxInt64) is 2^63, which no int64 holds.
	if math.IsNaN(f) || f < 0 || f >= float64(math.MaxInt64) {
		return 0, strconv.ErrRange
	}
	return f, nil
}

// FormatSize prints bytes for people, as CodaLab's commands do: with one decimal below 100 of
// a unit unless the number is whole, otherwise without (codalab/lib/formatting.py: size_str).
func FormatSize(n int64) string {
	f := float64(n)
	for _, suffix := range []string{"", "k", "m", "g"} {
		if f < 1024 {
			return trimDecimal(f, suffix)
		}
		f /= 1024
	}
	return trimDecimal(f, "t")
}

func trimDecimal(f float64, suffix string) string {
	if suffix == "" || f >= 100 || f == math.Trunc(f) {
		return fmt.Sprintf("%.0f%s", math.Floor(f), suffix)
	}
	return fmt.Sprintf("%.1f%s", f, suffix)
}

// FormatDuration prints a duration for people with its two largest units, as CodaLab's
// commands do: "1d2h", "3m20s", "4.0s" (codalab/lib/formatting.py: duration_str).
func FormatDuration(d time.Duration) string {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	switch {
	case d >= year:
		return fmt.Sprintf("%dy%dd", d/year, d%year/day)
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	default:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
}

// SpellDuration prints whole seconds for ParseDuration, in the largest unit that loses
// nothing: "2d", "90m".
func SpellDuration(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= u.unit && d%u.unit == 0 {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// Sentence turns an error's text into a sentence for a bundle's status: one line, with a
// capital at its beginning and a full stop at its end. An empty text stays empty.
func Sentence(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// FormatEnergy prints joules for people, in joules, watt-hours or kilowatt-hours.
func FormatEnergy(joules int64) string {
	switch wattHours := float64(joules) / 3600; {
	case wattHours < 1:
		return fmt.Sprintf("%d J", joules)
	case wattHours < 1000:
		return fmt.Sprintf("%.1f Wh", wattHours)
	default:
		return fmt.Sprintf("%.2f kWh", wattHours/1000)
	}
}
