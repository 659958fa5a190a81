package purgers

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tmpfiles returns the rules of systemd-tmpfiles with an age, without those from which a line of type x takes the
// target out. A line of type X keeps a directory and none of its files. A file in /etc or /run replaces the file of that name in /usr/lib (tmpfiles.d(5), CONFIGURATION
// DIRECTORIES AND PRECEDENCE).
func (h host) tmpfiles(target string) []Rule {
	var rules []Rule
	var seen []string
	for _, dir := range []string{"/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d"} {
		for _, name := range h.files(dir + "/*.conf") {
			if slices.Contains(seen, path.Base(name)) {
				continue
			}
			seen = append(seen, path.Base(name))
			for _, line := range h.lines(name) {
				r, kind := parseTmpfiles(line)
				if kind == 'x' && h.covers(r.Dir, target) {
					return nil
				}
				if r.Age > 0 {
					r.Source = name
					rules = append(rules, r)
				}
			}
		}
	}
	return rules
}

// cleaned are the types of lines whose age counts (tmpfiles.d(5)).
const cleaned = "dDeCvqQ"

// parseTmpfiles reads a line: type, path, mode, user, group, age, argument. Its kind is 0 if the line has neither an age
// nor takes a path out.
func parseTmpfiles(line string) (r Rule, kind byte) {
	f := strings.Fields(line)
	if len(f) < 2 {
		return r, 0
	}
	dir := strings.NewReplacer("%%", "%", "%T", "/tmp", "%V", "/var/tmp", "%t", "/run", "%S", "/var/lib", "%C", "/var/cache", "%L", "/var/log").
		Replace(strings.Trim(f[1], `"`))
	r = Rule{By: "systemd-tmpfiles", Dir: path.Clean(dir)}
	switch kind = f[0][0]; {
	case kind == 'x':
		return r, kind
	case strings.IndexByte(cleaned, kind) < 0 || len(f) < 6:
		return r, 0
	}
	age, ok := parseAge(f[5])
	if !ok || age == 0 {
		return r, 0
	}
	r.Age = age
	return r, kind
}

// parseAge reads the age of a line, such as 10d, ~1w2d or bm:12h. A number without a unit is in seconds.
func parseAge(text string) (age time.Duration, ok bool) {
	if _, after, found := strings.Cut(text, ":"); found {
		text = after
	}
	text = strings.TrimPrefix(text, "~")
	for text != "" {
		digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
		n, err := strconv.ParseInt(text[:digits], 10, 32)
		if err != nil {
			return 0, false
		}
		text = text[digits:]
		letters := len(text) - len(strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyz"))
		unit, known := units()[text[:letters]]
		if !known {
			return 0, false
		}
		age += time.Duration(n) * unit
		text = text[letters:]
	}
	return age, true
}

// units are the units of systemd.time(7) that stand in rules.
func units() map[string]time.Duration {
	const day = 24 * time.Hour
	return map[string]time.Duration{
		"": time.Second, "s": time.Second, "sec": time.Second, "m": time.Minute, "min": time.Minute, "h": time.Hour, "hr": time.Hour,
		"d": day, "day": day, "days": day, "w": 7 * day, "week": 7 * day, "weeks": 7 * day, "month": 30 * day, "months": 30 * day, "y": 365 * day, "year": 365 * day,
		"ms": time.Millisecond, "us": time.Microsecond, "minute": time.Minute, "minutes": time.Minute, "hour": time.Hour, "hours": time.Hour,
	}
}
