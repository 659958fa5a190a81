package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutDoctor = `doctor checks everything that a first job needs, and prints a line for each check: ok,
warning or failed, the key of the configuration, what it found, and what to do. It
logs in to the server and asks Slurm about each queue. It submits a held job to each queue,
prints the site's changes to its name, comment and options, and cancels it. Then it submits
a short job to each queue, with one GPU where its nodes have any. The job checks its node, and the shared disk
together with this host. doctor cancels a job that has not begun within --wait. --node chooses the node. In the shared directory it
leaves only the program cl-worker, which the bridge needs there anyway.

cl-bridge config check --live makes the same checks without the jobs.

Exit codes: 0 nothing failed; 1 something did; 2 the command line or the configuration
is wrong; 3 the server, Slurm or the ledger's database does not answer, and nothing
else failed.`

// examination selects doctor's checks.
type examination struct {
	jobs   bool
	wait   time.Duration
	queues []string // empty for all
	node   string   // empty for any
}

func doctorCommand(p program.Process) *cobra.Command {
	x := examination{jobs: true}
	cmd := siteCommand(p, "doctor", "Check everything that a first job needs, with a short job on each queue", aboutDoctor, cobra.NoArgs,
		func(ctx context.Context, s *site, _ []string) error { return x.printChecks(ctx, s) })
	cmd.Flags().DurationVar(&x.wait, "wait", time.Minute, "cancel a job that has not begun after this `duration`")
	cmd.Flags().StringSliceVar(&x.queues, "queue", nil, "only this `queue`; may be repeated")
	cmd.Flags().StringVar(&x.node, "node", "", "send the jobs to this `node`")
	if err := cmd.RegisterFlagCompletionFunc("queue", completeQueues(p)); err != nil {
		panic(err) // the flag was added above
	}
	return cmd
}

// nodeName matches Slurm's name of one node.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// listCache returns a function that lists the cache's contents; none if there is no cache yet. Only the function
// touches the disk, which may not answer.
func listCache(s *site) func(context.Context) ([]cache.Entry, error) {
	return func(ctx context.Context) ([]cache.Entry, error) {
		dir := assembly.CacheDir(s.Config)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		c, err := cache.Open(dir, assembly.CacheOptions(s.Config, nil))
		if err != nil {
			return nil, err
		}
		return c.Entries(ctx)
	}
}

// printChecks makes the checks, and prints each result at once.
func (x examination) printChecks(ctx context.Context, s *site) error {
	for _, name := range x.queues {
		if s.Queue[name] == nil {
			return program.Usage(fmt.Errorf("--queue: there is no [queue.%s] in %s", name, s.flags.config))
		}
	}
	if x.node != "" && !nodeName.MatchString(x.node) {
		return program.Usage(fmt.Errorf("--node %q: want the name of one node, as sinfo -N prints it", x.node))
	}
	e := doctor.Examination{
		Config: s.Config, Slurm: slurmClient(s.Process, s.Config), Images: assembly.NewSource(s.Config, s.Getenv, nil), Now: s.Now, Getenv: s.Getenv,
		Only: x.queues, Jobs: x.jobs, Wait: x.wait, Node: x.node, CacheDir: assembly.CacheDir(s.Config), Cached: listCache(s),
		Found: func(c doctor.Check) {
			if !s.json {
				printCheck(s.Process, c)
			}
		},
		Sending: func(queues []string) {
			if !s.json {
				_, _ = fmt.Fprintf(s.Stderr, "sending a short job to %s, and waiting up to %s for each to begin\n", strings.Join(queues, ", "), x.wait)
			}
		},
	}
	checks := e.Run(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	failed := program.ChecksError(checks)
	if s.json {
		report := struct {
			Config  string         `json:"config"`
			Verdict doctor.Verdict `json:"verdict"`
			Checks  []doctor.Check `json:"checks"`
		}{s.flags.config, doctor.OK, checks}
		if failed != nil {
			report.Verdict = doctor.Failed
		}
		if err := s.print(report, ""); err != nil {
			return err
		}
	}
	return failed
}

func printCheck(p program.Process, c doctor.Check) {
	_, _ = fmt.Fprintln(p.Stdout, c.Line()) // fails only if standard output is gone
}

const aboutCheck = `check reads a configuration and prints its mistakes. With --live it also makes the
checks of cl-bridge doctor, except for the jobs, and ends with doctor's exit codes.
It changes nothing.`

// configCommand checks a configuration.
func configCommand(p program.Process) *cobra.Command {
	live := false
	check := siteCommand(p, "check", "Check a configuration; with --live, also the server, Slurm and the disks that it names", aboutCheck, cobra.NoArgs,
		func(ctx context.Context, s *site, _ []string) error {
			if live {
				return examination{}.printChecks(ctx, s)
			}
			if s.json {
				return program.Usage(errors.New("--json goes with --live"))
			}
			return s.print(nil, fmt.Sprintf("%s: %d queues, no mistake in the file; --live checks the server, Slurm and the disks, too\n", s.Path, len(s.Queue)))
		})
	check.Flags().BoolVar(&live, "live", false, "check the server, Slurm and the disks too")
	check.Flags().Lookup("json").Usage = "with --live, print JSON"
	return parentOf("config", "Look at a configuration", "", check)
}
