package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// spellSize returns a size as CodaLab writes it, in powers of 1024: 8GiB and 8GB are 8g.
func spellSize(text string) (string, error) {
	m := regexp.MustCompile(`^(?i)\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(?:i?b)?\s*$`).FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("a size, such as 300m or 8g, not %q", text)
	}
	spelled := m[1] + strings.ToLower(m[2])
	if m[2] == "" {
		if _, err := strconv.ParseInt(m[1], 10, 64); err != nil { // bytes are whole
			return "", fmt.Errorf("a size, such as 300m or 8g, not %q", text)
		}
	}
	_, err := codalab.ParseSize(spelled)
	return spelled, err
}

// spellDuration returns a time as CodaLab writes it. It also reads several units, 1h30m, and the forms of
// sbatch(1) that have a colon or a dash: minutes:seconds, hours:minutes:seconds, days-hours,
// days-hours:minutes and days-hours:minutes:seconds.
func spellDuration(text string) (string, error) {
	s := strings.ToLower(strings.ReplaceAll(text, " ", ""))
	bad := fmt.Errorf("a time, such as 90m, 3h, 1h30m or 1:30:00, not %q", text)
	if regexp.MustCompile(`^[0-9]*\.?[0-9]+[smhdy]?$`).MatchString(s) {
		_, err := codalab.ParseDuration(s)
		return s, err
	}
	if s != "" && !strings.ContainsAny(s, ":-") {
		var sum time.Duration
		for s != "" {
			m := regexp.MustCompile(`^([0-9]+[smhdy])`).FindString(s)
			if m == "" {
				return "", bad
			}
			d, err := codalab.ParseDuration(m)
			if err != nil {
				return "", bad
			}
			sum += d
			s = s[len(m):]
		}
		return codalab.SpellDuration(sum), nil
	}
	m := regexp.MustCompile(`^(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?$`).FindStringSubmatch(s)
	if m == nil {
		return "", bad
	}
	parts := []string{m[2], m[3], m[4]}
	if m[1] == "" && m[4] == "" { // minutes:seconds
		parts = []string{"0", m[2], m[3]}
	}
	total := time.Duration(0)
	for i, unit := range []time.Duration{time.Hour, time.Minute, time.Second} {
		n, err := strconv.ParseInt("0"+parts[i], 10, 32)
		if err != nil {
			return "", bad
		}
		total += time.Duration(n) * unit
	}
	days, err := strconv.ParseInt("0"+m[1], 10, 16)
	if err != nil {
		return "", bad
	}
	return codalab.SpellDuration(total + time.Duration(days)*24*time.Hour), nil
}

// spelled is the value of a flag that takes a size or a time in several spellings, and keeps CodaLab's.
type spelled struct {
	text  string
	spell func(string) (string, error)
	kind  string
}

// Set reads a size or a time. The place of a setting, {NAME}, stays: the value is checked when it is filled in.
func (s *spelled) Set(text string) error {
	if text == "" || s.kind != "times" && hasPlace(text) {
		s.text = text
		return nil
	}
	var err error
	s.text, err = s.spell(text)
	return err
}

// String is the value as CodaLab writes it.
func (s *spelled) String() string { return s.text }

// Type returns the placeholder of the value in the help.
func (s *spelled) Type() string { return s.kind }

// wholeNumber is the value of a flag: an int64, or a text that has the place of a setting.
type wholeNumber struct{ value any }

// Set reads a number.
func (n *wholeNumber) Set(text string) error {
	if hasPlace(text) {
		n.value = text
		return nil
	}
	number, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return fmt.Errorf("a whole number, not %q", text)
	}
	n.value = number
	return nil
}

// String is the number.
func (n *wholeNumber) String() string { return fmt.Sprint(n.value) }

// Type returns the placeholder of the value in the help.
func (n *wholeNumber) Type() string { return "int" }

// hasPlace reports whether a text may have the place of a setting.
func hasPlace(text string) bool { return strings.Contains(text, "{") }

// Smaller requests are probably mistakes: sbatch counts in minutes and megabytes, CodaLab in seconds and
// bytes.
const (
	leastTime   = time.Minute
	leastMemory = 4 << 20
)

// checkRequests refuses a request of nothing, with which no run can begin.
func checkRequests(m codalab.Metadata) error {
	for _, key := range []string{"request_time", "request_memory", "request_disk"} {
		if text := m.String(key); text != "" && !strings.ContainsAny(text, "123456789") {
			return refusef("--%s %s asks for nothing: leave it out for what the site gives, or ask for more", flagName(key), text)
		}
	}
	return nil
}

// warnOfSmallRequests prints a warning for each request that is probably a mistake. The request stays
// unchanged.
func (c *cli) warnOfSmallRequests(m codalab.Metadata) {
	unitless := regexp.MustCompile(`^[0-9.]+$`)
	if text := m.String("request_time"); text != "" {
		switch d, err := codalab.ParseDuration(text); {
		case err != nil || d >= leastTime:
		case unitless.MatchString(text):
			c.warn("cl: --request-time %s means seconds; write %sm for minutes", text, text)
		default:
			c.warn("cl: --request-time %s ends the run after %s", text, codalab.FormatDuration(d))
		}
	}
	if text := m.String("request_memory"); text != "" {
		switch n, err := codalab.ParseSize(text); {
		case err != nil || n >= leastMemory:
		case unitless.MatchString(text):
			c.warn("cl: --request-memory %s means bytes; write %sg for gigabytes", text, text)
		default:
			c.warn("cl: --request-memory %s is less than the 4m that a run needs at least", text)
		}
	}
}
