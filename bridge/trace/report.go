package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// ReportText replays a trace and prints the decisions that have another result now, or do not continue the
// bundle's previous decision; with all set, it prints every decision. Errors of printing appear when the
// caller flushes out.
func ReportText(out *bufio.Writer, in io.Reader, bundle string, all bool) (Summary, error) {
	printLine := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	sum, err := Replay(in, bundle, func(d Decision) error {
		if all || d.wrong() {
			printLine("%s %s %s → %s: %s %v", d.Now.Format(time.RFC3339), d.Row.Bundle, d.Row.Phase, d.Next.Phase, d.Next.Reason, d.Effects)
		}
		for _, f := range d.Discontinuous {
			printLine("  line %d: %s was %s before, and here it is %s", d.Line, f.Field, f.Was, f.Is)
		}
		for _, f := range d.Different {
			printLine("  line %d: %s was decided as %s, and comes out as %s", d.Line, f.Field, f.Was, f.Is)
		}
		return nil
	})
	if err != nil {
		return sum, err
	}
	if sum.Torn > 0 {
		printLine("replay: left out %d lines that a crash has torn", sum.Torn)
	}
	if sum.Lost > 0 {
		printLine("replay: %d decisions are missing: they came faster than they could be written", sum.Lost)
	}
	printLine("replay: decisions=%d rows=%d different=%d", sum.Decisions, sum.Rows, sum.Different)
	return sum, nil
}

// ReportJSON does the same with a JSON object on each line.
func ReportJSON(out *bufio.Writer, in io.Reader, bundle string, all bool) (Summary, error) {
	type decision struct {
		Line          int          `json:"line"`
		Now           time.Time    `json:"now"`
		Bundle        string       `json:"bundle"`
		From          plan.Phase   `json:"from"`
		To            plan.Phase   `json:"to"`
		Reason        string       `json:"reason"`
		Effects       []plan.Kind  `json:"effects"`
		Different     []Difference `json:"different,omitempty"`
		Discontinuous []Difference `json:"discontinuous,omitempty"`
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	sum, err := Replay(in, bundle, func(d Decision) error {
		if !all && !d.wrong() {
			return nil
		}
		return enc.Encode(decision{
			d.Line, d.Now, d.Row.Bundle, d.Row.Phase, d.Next.Phase, d.Next.Reason, append([]plan.Kind{}, d.Effects...), d.Different, d.Discontinuous,
		})
	})
	if err != nil {
		return sum, err
	}
	return sum, enc.Encode(sum)
}

func (d Decision) wrong() bool { return len(d.Different)+len(d.Discontinuous) > 0 }
