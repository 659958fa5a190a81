// Package transcript reads terminal sessions of a Markdown page, so that a test can type them again and compare the
// answers.
//
// A session is a fenced block with the info string "console". A line that begins with "$ " is a command, and lines with
// "> " continue it, as in a shell. The other lines are the answer. A line of only "…" stands for any number of lines. Lines
// that tell the state of a bundle before its end, as those of cl wait, come or not as time goes, and do not count.
package transcript

import (
	"regexp"
	"strings"
)

// Step is a command of a session, and its answer.
type Step struct {
	// Line is the command's line on the page. The first line is 1.
	Line int
	// Command has no newline at its end.
	Command string
	// Answer is the text on the page, with a newline after each line.
	Answer string
}

const (
	prompt       = "$ "
	continuation = "> "
	ellipsis     = "…"
)

// Parse returns the steps of a page, in its order.
func Parse(page string) []Step {
	var steps []Step
	inside := false
	commanding := false // the line before belongs to a command
	for i, line := range strings.Split(page, "\n") {
		last := len(steps) - 1
		switch {
		case line == "```console":
			inside = true
		case strings.HasPrefix(line, "```"):
			inside = false
		case !inside:
		case strings.HasPrefix(line, prompt):
			steps = append(steps, Step{Line: i + 1, Command: line[len(prompt):]})
			commanding = true
			continue
		case commanding && (strings.HasPrefix(line, continuation) || line == ">"):
			steps[last].Command += "\n" + strings.TrimPrefix(strings.TrimPrefix(line, ">"), " ")
			continue
		case last >= 0:
			steps[last].Answer += line + "\n"
		}
		commanding = false
	}
	return steps
}

// Rewrite returns the page with new answers, one for each of its steps. An answer that is the Same as the page's stays as
// it is on the page.
func Rewrite(page string, answers []string) string {
	lines := strings.Split(page, "\n")
	var out []string
	at := 0
	for i, step := range Parse(page) {
		answer := step.Line + strings.Count(step.Command, "\n") // the index of the answer's first line
		out = append(out, lines[at:answer]...)
		text := step.Answer
		if !Same(text, answers[i]) {
			text = answers[i]
		}
		if text != "" {
			out = append(out, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
		}
		at = answer + strings.Count(step.Answer, "\n")
	}
	return strings.Join(append(out, lines[at:]...), "\n")
}

// The parts of an answer that are others each time, or come only sometimes. Spaces and rules are as wide as a table's columns.
var (
	status   = regexp.MustCompile(`(?m)^(created|staged|starting|preparing|running|finalizing): .*\n`)
	uuid     = regexp.MustCompile(`0x[0-9a-f]{4,32}`)
	address  = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	date     = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?`)
	duration = regexp.MustCompile(`\b(\d+[hm])*\d+(\.\d+)?s\b`)
	job      = regexp.MustCompile(`\bjob \d+\b`)
	node     = regexp.MustCompile(`\bn[1-4]\b`)
	rule     = regexp.MustCompile(`-{3,}`)
	spaces   = regexp.MustCompile(` {2,}`)
	trailing = regexp.MustCompile(`(?m) +$`)
)

func lasting(text string) []string {
	for _, part := range []struct {
		of *regexp.Regexp
		as string
	}{
		{status, ""},
		{uuid, "0xUUID"},
		{address, "ADDRESS"},
		{date, "DATE"},
		{duration, "DURATION"},
		{job, "job N"},
		{node, "NODE"},
		{rule, "---"},
		{spaces, "  "},
		{trailing, ""},
	} {
		text = part.of.ReplaceAllString(text, part.as)
	}
	if text = strings.TrimRight(text, "\n"); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Same reports whether an answer is that of the page: but for identifiers, times, addresses and the widths of columns.
func Same(page, answer string) bool { return matches(lasting(page), lasting(answer)) }

func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == ellipsis {
		for i := range len(got) + 1 {
			if matches(want[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && want[0] == got[0] && matches(want[1:], got[1:])
}
