package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/imageadmin"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const aboutDoctor = `doctor checks everything that a first job needs, and prints a line for each check: ok,
warning or failed, the key of the configuration, what it found, and what to do. It
logs in to the server, asks Slurm about each queue, and then sends a short job to each
queue. The job checks its node, and the shared disk together with this host. doctor
cancels a job that has not begun within --wait. In the shared directory it leaves only
the program cl-worker, which the bridge needs there anyway.

cl-bridge config check --live makes the same checks without the jobs.

Exit codes: 0 nothing failed; 1 something did; 2 the command line or the configuration
is wrong; 3 the server, Slurm or the ledger's database does not answer, and nothing
else failed.`

// doctorOptions are doctor's flags.
type doctorOptions struct {
	siteFlags
	json  bool
	jobs  bool
	wait  time.Duration
	queue []string
}

func doctorCommand(p program.Process) *cobra.Command {
	o := doctorOptions{jobs: true}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check everything that a first job needs, with a short job on each queue", Long: aboutDoctor,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p) },
	}
	o.flags(cmd, p)
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().DurationVar(&o.wait, "wait", time.Minute, "cancel a job that has not begun after this `duration`")
	cmd.Flags().StringSliceVar(&o.queue, "queue", nil, "only this `queue`; may be repeated")
	if err := cmd.RegisterFlagCompletionFunc("queue", completeQueues(p)); err != nil {
		panic(err) // the flag was added above
	}
	return cmd
}

// run checks everything, and prints each check when it is known.
func (o doctorOptions) run(ctx context.Context, p program.Process) error {
	c, err := o.read(p)
	if err != nil {
		return err
	}
	for _, name := range o.queue {
		if c.Queue[name] == nil {
			return &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("--queue: there is no [queue.%s] in %s", name, o.config)}
		}
	}
	e := doctor.Examination{
		Config: c, Slurm: slurmClient(p, c), Images: imageadmin.NewSource(c, p.Getenv, nil), Now: p.Now, Only: o.queue, Jobs: o.jobs, Wait: o.wait,
		Found: func(c doctor.Check) {
			if !o.json {
				printCheck(p, c)
			}
		},
		Sending: func(queues []string) {
			if !o.json {
				_, _ = fmt.Fprintf(p.Stderr, "sending a short job to %s, and waiting up to %s for each to begin\n", strings.Join(queues, ", "), o.wait)
			}
		},
	}
	checks := e.Run(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	failed, allAway := doctor.HasFailed(checks)
	if o.json {
		report := struct {
			Config  string         `json:"config"`
			Verdict doctor.Verdict `json:"verdict"`
			Checks  []doctor.Check `json:"checks"`
		}{o.config, doctor.OK, checks}
		if failed {
			report.Verdict = doctor.Failed
		}
		if err := printJSON(p.Stdout, report); err != nil {
			return err
		}
	}
	switch {
	case allAway:
		return &program.Error{Code: program.ExitTransient}
	case failed:
		return &program.Error{Code: program.ExitFailure}
	}
	return nil
}

func printCheck(p program.Process, c doctor.Check) {
	text := fmt.Sprintf("%-8s %s: %s", c.Verdict, c.Name, termtext.Line(c.Found))
	if c.Do != "" {
		text += "; " + termtext.Line(c.Do)
	}
	_, _ = fmt.Fprintln(p.Stdout, text) // standard output is gone
}
