package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutExplain = `explain says where a bundle is, since when and why, what it waits for, and what
was decided about it before. It reads the bridge's ledger, whether the bridge
runs or not. A bundle that the bridge has forgotten still has its history, for
30 days.

UUID may be shortened to its beginning, such as 0x1a2b, while that is one
bundle's.`

// explainOptions are explain's flags.
type explainOptions struct {
	config, ledger string
	json           bool
}

func explainCommand(p program.Process) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use: "explain UUID", Short: "Say where a bundle is, and why", Long: aboutExplain,
		Args: program.WrongUsage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return unavailable(explain(cmd.Context(), p, o, args[0]))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeBundle(cmd.Context(), p, o, begun), cobra.ShellCompDirectiveNoFileComp
		},
	}
	configFlag(cmd, p, &o.config)
	needsConfig := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if o.ledger != "" {
			return nil // nothing else is wanted of the configuration
		}
		return needsConfig(cmd, args)
	}
	ledgerFlag(cmd, &o.ledger)
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// open opens the ledger beside the bridge that may be at work on it, and
// returns its name too.
func (o explainOptions) open(ctx context.Context, p program.Process) (*ledger.Reader, string, error) {
	var c config.Config
	if o.ledger == "" {
		var err error
		if c, err = config.Read(o.config); err != nil {
			return nil, "", &program.Error{Code: program.ExitUsage, Err: err}
		}
	}
	where, err := ledgerPlace(p, c, o.ledger)
	if err != nil {
		return nil, "", err
	}
	r, err := ledger.OpenToRead(ctx, where)
	if errors.Is(err, ledger.ErrAbsent) {
		err = fmt.Errorf("no bridge has made a ledger at %s yet", sqldb.Name(where))
	}
	return r, sqldb.Name(where), err
}

// completeBundle offers the bundles whose UUID has begun so.
func completeBundle(ctx context.Context, p program.Process, o explainOptions, begun string) []string {
	if begun != "" && begun != "0" && begun != "0x" && !codalab.IsUUIDPrefix(begun) {
		return nil
	}
	if o.ledger == "" {
		var err error
		if o.config, err = findConfig(p, o.config); err != nil {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, _, err := o.open(ctx, p)
	if err != nil {
		return nil
	}
	defer r.Close() //nolint:errcheck // it was only read
	if len(begun) < len("0x") {
		begun = "0x"
	}
	const most = 100
	bundles, err := r.Bundles(ctx, begun, most)
	if err != nil {
		return nil
	}
	return bundles
}

// explanation is what explain says, in JSON.
type explanation struct {
	Bundle string `json:"bundle"`
	// Forgotten is set for a bundle that has no row any more: of it there is
	// the history alone.
	Forgotten bool          `json:"forgotten"`
	Queue     string        `json:"queue,omitempty"`
	Phase     plan.Phase    `json:"phase,omitempty"`
	Since     time.Time     `json:"since,omitzero"`
	Reason    string        `json:"reason,omitempty"`
	WaitsFor  string        `json:"waits_for,omitempty"`
	Due       time.Time     `json:"due,omitzero"`
	Tries     int           `json:"tries,omitempty"`
	Trouble   string        `json:"trouble,omitempty"`
	Attempt   int           `json:"attempt"`
	Job       sbatch.JobID  `json:"job,omitempty"`
	JobState  sbatch.State  `json:"job_state,omitempty"`
	JobReason string        `json:"job_reason,omitempty"`
	Node      string        `json:"node,omitempty"`
	Verdict   *plan.Verdict `json:"verdict,omitempty"`
	// Used is what the attempt has used, once it has ended.
	Used *spool.Usage `json:"used,omitempty"`
	// Ran says by which way its container was run, and why.
	Ran spool.Ran `json:"ran,omitzero"`
	// Notes are about data that is used in place and is not as it was, and about
	// what was unlike in other runs.
	Notes []string `json:"notes,omitempty"`

	History []ledger.Entry `json:"history"`
}

func explain(ctx context.Context, p program.Process, o explainOptions, spec string) error {
	r, name, err := o.open(ctx, p)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was only read
	bundle, err := find(ctx, r, name, spec)
	if err != nil {
		return err
	}
	e, err := look(ctx, r, bundle)
	if err != nil {
		return err
	}
	if !e.Forgotten || len(e.History) > 0 {
		return e.print(p, o.json)
	}
	return fmt.Errorf("no bundle %s in the ledger %s: this bridge has not had it, or has forgotten it more than 30 days ago", spec, name)
}

// find returns the one bundle that a UUID, or the beginning of one, means.
func find(ctx context.Context, r *ledger.Reader, name, spec string) (string, error) {
	if codalab.IsUUID(spec) {
		return spec, nil
	}
	if !codalab.IsUUIDPrefix(spec) {
		return "", &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("%q is no UUID, nor the beginning of one: want 0x and hexadecimal digits", spec)}
	}
	const most = 4
	bundles, err := r.Bundles(ctx, spec, most)
	switch {
	case err != nil:
		return "", err
	case len(bundles) == 0:
		return "", fmt.Errorf("no bundle whose UUID begins with %s in the ledger %s", spec, name)
	case len(bundles) > 1:
		shown := strings.Join(bundles[:min(len(bundles), most-1)], ", ")
		if len(bundles) == most {
			shown += ", …"
		}
		return "", &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("%s is the beginning of several bundles: %s", spec, shown)}
	}
	return bundles[0], nil
}

// look gathers what the ledger knows of a bundle.
func look(ctx context.Context, r *ledger.Reader, bundle string) (explanation, error) {
	e := explanation{Bundle: bundle}
	row, err := r.Row(ctx, bundle)
	switch {
	case errors.Is(err, ledger.ErrAbsent):
		e.Forgotten = true
	case err != nil:
		return e, err
	default:
		e.Queue, e.Phase, e.Since, e.Reason = row.Queue, row.Phase, row.Since, row.Reason
		e.WaitsFor, e.Due, e.Tries, e.Trouble = waitsFor(row), row.Due, row.Tries, row.Trouble
		e.Attempt, e.Job, e.JobState, e.JobReason = row.Attempt, row.Job.ID, row.Job.State, row.Job.Reason
		e.Verdict, e.Notes = row.Verdict, row.Notes()
		if row.Begun != nil {
			e.Node = row.Begun.Node
		}
		if row.Exit != nil {
			e.Used, e.Ran = &row.Exit.Usage, row.Exit.Ran
			if row.Exit.Note != "" {
				e.Notes = append(e.Notes, row.Exit.Note)
			}
		}
	}
	e.History, err = r.History(ctx, bundle)
	return e, err
}

func (e explanation) print(p program.Process, asJSON bool) error {
	if asJSON {
		return printJSON(p.Stdout, e)
	}
	_, err := fmt.Fprint(p.Stdout, e.text(p.Now()))
	return err //nolint:wrapcheck // standard output is gone
}
