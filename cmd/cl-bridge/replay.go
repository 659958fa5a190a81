package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutReplay = `replay makes each decision of a trace ("cl-bridge run --trace FILE") again, with
the policy of that time, and prints those that come out differently or do not
continue the bundle's decision before. It needs no server, no Slurm and no
configuration.

It ends with a line "replay: decisions=N rows=M different=D", and with exit
code 1 when D is not 0.`

func replayCommand(p program.Process) *cobra.Command {
	var bundle string
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use: "replay FILE", Short: "Make a trace's decisions again", Long: aboutReplay, Args: program.WrongUsage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return program.Usage(fmt.Errorf("replay: %w", err))
			}
			out := bufio.NewWriter(p.Stdout)
			report := trace.ReportText
			if asJSON {
				report = trace.ReportJSON
			}
			sum, err := report(out, f, bundle, verbose)
			if err := errors.Join(err, out.Flush(), f.Close()); err != nil {
				return err
			}
			if sum.Different > 0 {
				return &program.Error{Code: program.ExitFailure} // the report has the reason
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "only bundles whose ids begin with `UUID`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one a line")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print each decision")
	return cmd
}
