package interpret

import (
	"regexp"
	"strconv"
	"strings"
)

// parseSubstitution reads "s/pattern/replacement", in which \/ stands for a slash. The replacement is
// Python's: \1 and \g<name> stand for groups.
func parseSubstitution(text string) step {
	parts := splitUnescaped(text)
	if len(parts) != 3 {
		return final("<invalid regex: " + text + ">")
	}
	failed := func(value any) (any, bool) { return fail(value) }
	if len(parts[1]) > maxPattern || len(parts[2]) > maxPattern {
		return failed
	}
	pattern, err := regexp.Compile(parts[1])
	if err != nil {
		return failed
	}
	pieces, ok := parseReplacement(parts[2], pattern)
	if !ok {
		return failed
	}
	return func(value any) (any, bool) {
		subject, isText := value.(string)
		if !isText || len(subject) > maxReplaced {
			return fail(value)
		}
		return substitute(pattern, pieces, subject)
	}
}

// splitUnescaped splits text at slashes and resolves \/.
func splitUnescaped(text string) []string {
	parts := []string{""}
	for i := 0; i < len(text); i++ {
		last := len(parts) - 1
		switch {
		case strings.HasPrefix(text[i:], `\/`):
			parts[last] += "/"
			i++
		case text[i] == '/':
			parts = append(parts, "")
		default:
			parts[last] += string(text[i : i+1])
		}
	}
	return parts
}

// piece is a part of a replacement: a text, or a group if it is not negative.
type piece struct {
	text  string
	group int
}

func substitute(pattern *regexp.Regexp, pieces []piece, subject string) (any, bool) {
	var out strings.Builder
	end := 0
	for _, match := range pattern.FindAllStringSubmatchIndex(subject, -1) {
		out.WriteString(subject[end:match[0]])
		for _, p := range pieces {
			if p.group < 0 {
				out.WriteString(p.text)
			} else if from := match[2*p.group]; from >= 0 {
				out.WriteString(subject[from:match[2*p.group+1]])
			}
		}
		end = match[1]
		if out.Len() > maxText {
			return fail(subject)
		}
	}
	out.WriteString(subject[end:])
	return out.String(), true
}

// reference matches the references of a replacement, which begin with a backslash.
var reference = regexp.MustCompile(`^\\(?:g<(\w+)>|([1-9][0-9]?)|(?s:(.)))`)

// parseReplacement reads a replacement in Python's form. False means that Python would fail.
func parseReplacement(text string, pattern *regexp.Regexp) ([]piece, bool) {
	var pieces []piece
	for text != "" {
		plain, _, _ := strings.Cut(text, `\`)
		pieces = append(pieces, piece{text: plain, group: -1})
		text = text[len(plain):]
		if text == "" {
			break
		}
		m := reference.FindStringSubmatch(text)
		if m == nil {
			return nil, false
		}
		p, ok := escape(m, pattern)
		if !ok {
			return nil, false
		}
		pieces = append(pieces, p)
		text = text[len(m[0]):]
	}
	return pieces, true
}

func escape(m []string, pattern *regexp.Regexp) (piece, bool) {
	if m[3] == "" {
		name := m[1] + m[2]
		group, err := strconv.Atoi(name)
		if err != nil {
			group = pattern.SubexpIndex(name)
		}
		return piece{group: group}, group >= 0 && group <= pattern.NumSubexp()
	}
	if text, ok := map[string]string{
		"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", `\`: `\`, "0": "\x00",
	}[m[3]]; ok {
		return piece{text: text, group: -1}, true
	}
	letter := m[3][0]|0x20 >= 'a' && m[3][0]|0x20 <= 'z'
	return piece{text: m[0], group: -1}, !letter
}
