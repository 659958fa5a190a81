package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutReplay = `Replay decides each decision of a trace again, by the policy with which it was
recorded ("cl-bridge run --trace FILE"), and prints those that come out
differently, or that do not continue what was decided of the bundle before. It
needs no server, no Slurm and no configuration.

It ends with a line "replay: decisions=N rows=M different=D", and with exit
code 1 when D is not 0.`

func replayCommand(p program.Process) *cobra.Command {
	var bundle string
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use: "replay FILE", Short: "Decide a trace's decisions again", Long: aboutReplay, Args: program.WrongUsage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("replay: %w", err)}
			}
			out := bufio.NewWriter(p.Stdout)
			report := reportText
			if asJSON {
				report = reportJSON
			}
			sum, err := report(out, f, bundle, verbose)
			if err := errors.Join(err, out.Flush(), f.Close()); err != nil {
				return err
			}
			if sum.Different > 0 {
				return &program.Error{Code: program.ExitFailure} // said already
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "only bundles whose ids begin with `UUID`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one a line")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print each decision")
	return cmd
}

// reportText prints a line for each decision that is worth one, and under it
// what is wrong with it. out's Flush has the errors of printing.
func reportText(out *bufio.Writer, in io.Reader, bundle string, verbose bool) (trace.Summary, error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	sum, err := trace.Replay(in, bundle, func(d trace.Decision) error {
		if verbose || remarkable(d) {
			say("%s %s %s → %s: %s %v", d.Now.Format(time.RFC3339), d.Row.Bundle, d.Row.Phase, d.Next.Phase, d.Next.Reason, kinds(d))
		}
		for _, f := range d.Discontinuous {
			say("  line %d: %s was %s before, and here it is %s", d.Line, f.Field, f.Was, f.Is)
		}
		for _, f := range d.Different {
			say("  line %d: %s was decided as %s, and comes out as %s", d.Line, f.Field, f.Was, f.Is)
		}
		return nil
	})
	if err != nil {
		return sum, err
	}
	if sum.Torn > 0 {
		say("replay: left out %d lines that a crash has torn", sum.Torn)
	}
	if sum.Lost > 0 {
		say("replay: %d decisions are missing: they came faster than they could be written", sum.Lost)
	}
	say("replay: decisions=%d rows=%d different=%d", sum.Decisions, sum.Rows, sum.Different)
	return sum, nil
}

// reportJSON does the same for programs.
func reportJSON(out *bufio.Writer, in io.Reader, bundle string, verbose bool) (trace.Summary, error) {
	type decision struct {
		Line          int                `json:"line"`
		Now           time.Time          `json:"now"`
		Bundle        string             `json:"bundle"`
		From          plan.Phase         `json:"from"`
		To            plan.Phase         `json:"to"`
		Reason        string             `json:"reason"`
		Effects       []plan.Kind        `json:"effects"`
		Different     []trace.Difference `json:"different,omitempty"`
		Discontinuous []trace.Difference `json:"discontinuous,omitempty"`
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	sum, err := trace.Replay(in, bundle, func(d trace.Decision) error {
		if !verbose && !remarkable(d) {
			return nil
		}
		return enc.Encode(decision{
			d.Line, d.Now, d.Row.Bundle, d.Row.Phase, d.Next.Phase, d.Next.Reason, kinds(d), d.Different, d.Discontinuous,
		})
	})
	if err != nil {
		return sum, err
	}
	err = enc.Encode(struct {
		Decisions int `json:"decisions"`
		Rows      int `json:"rows"`
		Different int `json:"different"`
		Torn      int `json:"torn"`
		Lost      int `json:"lost"`
	}{sum.Decisions, sum.Rows, sum.Different, sum.Torn, sum.Lost})
	return sum, err //nolint:wrapcheck // standard output is gone
}

func remarkable(d trace.Decision) bool { return len(d.Different)+len(d.Discontinuous) > 0 }

func kinds(d trace.Decision) []plan.Kind {
	kinds := make([]plan.Kind, 0, len(d.Effects))
	for _, e := range d.Effects {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}
