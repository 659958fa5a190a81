// Package checklist is the form in which the doctors of the programs print what they have checked: a line with a verdict, a
// finding and a remedy (cl doctor, cl-bridge doctor, cl-worker probe).
package checklist

import (
	"fmt"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts. A first job runs in spite of warnings.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning"
	Failed  Verdict = "failed"
)

// Check is the result for one thing that runs need.
type Check struct {
	// Name is a key of the configuration, such as "queue.gpu.partition", or another
	// word where the check is about no key.
	Name    string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// Found is the finding, Means its consequence for runs, and Do the advice about it. None ends with a full stop.
	Found string `json:"found"`
	Means string `json:"means,omitempty"`
	Do    string `json:"do,omitempty"`
	// Unreachable is set where something did not answer: a later try may go well.
	Unreachable bool `json:"away,omitempty"`
}

// Passed returns a check without a fault.
func Passed(name, format string, args ...any) Check {
	return Check{Name: name, Verdict: OK, Found: fmt.Sprintf(format, args...)}
}

// Meaning returns the check with a consequence for runs.
func (c Check) Meaning(means string) Check {
	c.Means = means
	return c
}

// Fault returns a check with a fault.
func Fault(v Verdict, name, found, means, do string) Check {
	return Check{Name: name, Verdict: v, Found: found, Means: means, Do: do}
}

// Text returns the finding, its consequence and the advice as one line.
func (c Check) Text() string {
	text := c.Found
	for _, more := range []string{c.Means, c.Do} {
		if more != "" {
			text += "; " + more
		}
	}
	return text
}

// Line returns the check as the programs print it.
func (c Check) Line() string {
	return fmt.Sprintf("%-8s %s: %s", c.Verdict, c.Name, termtext.Line(c.Text()))
}

// HasFailed reports whether any check failed, and whether each failed one is Unreachable.
func HasFailed(checks []Check) (one, allUnreachable bool) {
	allUnreachable = true
	for _, c := range checks {
		if c.Verdict == Failed {
			one, allUnreachable = true, allUnreachable && c.Unreachable
		}
	}
	return one, one && allUnreachable
}
