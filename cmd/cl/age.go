package main

import (
	"regexp"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// readAge reads the value of a flag that means a time in the past: an age with its unit, such as 30d, or a date.
func readAge(flag, s string, now time.Time) (time.Time, error) {
	if day, err := time.ParseInLocation(time.DateOnly, s, now.Location()); err == nil {
		if day.After(now) {
			return time.Time{}, refusef("%s: %s is in the future: want a date that has passed, or an age such as 30d", flag, s)
		}
		return day, nil
	}
	if regexp.MustCompile(`^[0-9]*\.?[0-9]+$`).MatchString(strings.TrimSpace(s)) {
		return time.Time{}, refusef("%s: %s has no unit: want an age such as 12h, %sd or 1y, or a date such as 2042-03-14", flag, s, strings.TrimSpace(s))
	}
	d, err := codalab.ParseDuration(s)
	from := now.Add(-d)
	if err != nil || d <= 0 || from.Year() < 1970 {
		return time.Time{}, refusef("%s: %q is no age: want one such as 12h, 30d or 1y, or a date such as 2042-03-14", flag, s)
	}
	return from, nil
}
