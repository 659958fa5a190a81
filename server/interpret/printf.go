package interpret

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// conversion is one conversion of a Python format.
var conversion = regexp.MustCompile(`%(?:%|([-#0 +]*)([0-9]*)(\.[0-9]*)?[hlL]?([a-zA-Z]))`)

// printf is a Python format with exactly one number.
type printf struct {
	before, after string
	flags         string
	width         int
	precision     int // -1 if there is none
	verb          byte
}

// parsePrintf reads a Python format for one floating-point number. False means that Python would fail.
func parsePrintf(format string) (printf, bool) {
	var p printf
	found := false
	var text strings.Builder
	rest := format
	for {
		before, after, more := strings.Cut(rest, "%")
		text.WriteString(before)
		if !more {
			break
		}
		m := conversion.FindStringSubmatch("%" + after)
		switch {
		case m == nil || !strings.HasPrefix("%"+after, m[0]):
			return p, false
		case m[0] == "%%":
			text.WriteByte('%')
		case found:
			return p, false
		default:
			found = true
			p.before = text.String()
			text.Reset()
			if !p.set(m) {
				return p, false
			}
		}
		rest = after[len(m[0])-1:]
	}
	p.after = text.String()
	return p, found
}

// set stores the parts of a conversion.
func (p *printf) set(m []string) bool {
	p.flags, p.verb, p.precision = m[1], m[4][0], -1
	if len(m[1]) > maxWidth || !strings.ContainsRune("diuaeEfFgGrs", rune(p.verb)) {
		return false
	}
	var err error
	if m[2] != "" {
		if p.width, err = strconv.Atoi(m[2]); err != nil || p.width > maxWidth {
			return false
		}
	}
	switch {
	case m[3] == ".":
		p.precision = 0
	case m[3] != "":
		if p.precision, err = strconv.Atoi(m[3][1:]); err != nil || p.precision > maxWidth {
			return false
		}
	}
	return true
}

// format prints a number.
func (p printf) format(f float64) (string, bool) {
	text, ok := "", true
	switch p.verb {
	case 'd', 'i', 'u':
		text, ok = p.whole(f)
	case 's', 'r', 'a':
		text = codalab.PythonFloat(f).String()
		if p.precision >= 0 {
			text = text[:min(p.precision, len(text))]
		}
		text = p.pad(text)
	default:
		text = p.real(f)
	}
	return p.before + text + p.after, ok
}

func (p printf) whole(f float64) (string, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "", false
	}
	n, _ := big.NewFloat(f).Int(nil)
	return fmt.Sprintf(p.spec('d'), n), true
}

func (p printf) real(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		text := codalab.PythonFloat(f).String()
		if p.verb == 'E' || p.verb == 'F' || p.verb == 'G' {
			text = strings.ToUpper(text)
		}
		if strings.Contains(p.flags, "+") && f > 0 {
			text = "+" + text
		}
		return p.pad(text)
	}
	if p.precision < 0 {
		p.precision = 6
	}
	if p.precision == 0 && (p.verb == 'g' || p.verb == 'G') {
		p.precision = 1
	}
	return fmt.Sprintf(p.spec(p.verb), f)
}

// spec returns the conversion in the syntax of Go's fmt.
func (p printf) spec(verb byte) string {
	spec := "%" + p.flags
	if p.width > 0 {
		spec += strconv.Itoa(p.width)
	}
	if p.precision >= 0 {
		spec += "." + strconv.Itoa(p.precision)
	}
	return spec + string(verb)
}

func (p printf) pad(text string) string {
	if strings.Contains(p.flags, "-") {
		return fmt.Sprintf("%-*s", p.width, text)
	}
	return fmt.Sprintf("%*s", p.width, text)
}
