// Package ignorefile reads files of patterns that leave entries of a directory out, as git reads .gitignore
// (gitignore(5), PATTERN FORMAT).
//
// The best known library, go-git's gitignore, does not know [!a] and does not find a/a/b for **/a/b. This package splits
// patterns at slashes, and leaves the wildcards to mvdan.cc/sh. Its test compares it with git.
package ignorefile

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/pattern"
)

// Verdict is the decision of a file's patterns on an entry.
type Verdict int

// The verdicts. Silent means that no pattern matches.
const (
	Silent Verdict = iota
	Ignored
	Kept
)

// Rules are the patterns of one file.
type Rules []rule

type rule struct {
	steps         []*regexp.Regexp // of the path, one for each name; nil is any number of them
	kept, onlyDir bool
}

// Parse reads the text of a file. A line that is no pattern matches nothing, as in git.
func Parse(text string) Rules {
	var rules Rules
	text = strings.TrimPrefix(text, "\ufeff")
	for line := range strings.Lines(text) {
		if r, ok := parseLine(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

func parseLine(line string) (r rule, ok bool) {
	line = trimBlanks(line)
	if strings.HasPrefix(line, "#") {
		return r, false
	}
	line, r.kept = strings.CutPrefix(line, "!")
	line, r.onlyDir = strings.CutSuffix(line, "/")
	if line == "" {
		return r, false
	}
	anchored := strings.Contains(line, "/")
	if !anchored {
		r.steps = append(r.steps, nil)
	}
	line = strings.TrimPrefix(line, "/")
	line = strings.NewReplacer(`\\`, `\\`, `\/`, "/").Replace(line) // an escaped slash is a slash
	for step := range strings.SplitSeq(line, "/") {
		if len(step) > 1 && strings.Trim(step, "*") == "" {
			r.steps = append(r.steps, nil)
			continue
		}
		text, err := pattern.Regexp(step, pattern.EntireString)
		if err != nil {
			return r, false
		}
		name, err := regexp.Compile(text)
		if err != nil {
			return r, false
		}
		r.steps = append(r.steps, name)
	}
	return r, true
}

// match reports whether steps are those of names. At the end, any number of names is at least one.
func match(steps []*regexp.Regexp, names []string) bool {
	switch {
	case len(steps) == 0 || len(names) == 0:
		return len(steps) == len(names)
	case steps[0] == nil && len(steps) == 1:
		return true
	case steps[0] == nil:
		return match(steps[1:], names) || match(steps, names[1:])
	}
	return steps[0].MatchString(names[0]) && match(steps[1:], names[1:])
}

// trimBlanks removes blanks at the end, except one after a backslash.
func trimBlanks(line string) string {
	trimmed := strings.TrimRight(line, " ")
	if len(trimmed) == len(line) {
		return line
	}
	slashes := len(trimmed) - len(strings.TrimRight(trimmed, `\`))
	if slashes%2 == 1 {
		return trimmed + " "
	}
	return trimmed
}

// Of returns the verdict on an entry by its slash-separated path below the file's directory. The last pattern that matches
// decides. A caller must not look into a directory that is ignored: its entries are, whatever the patterns say of them.
func (rules Rules) Of(below string, isDir bool) Verdict {
	names := strings.Split(below, "/")
	for i := len(rules) - 1; i >= 0; i-- {
		r := rules[i]
		if r.onlyDir && !isDir || !match(r.steps, names) {
			continue
		}
		if r.kept {
			return Kept
		}
		return Ignored
	}
	return Silent
}
