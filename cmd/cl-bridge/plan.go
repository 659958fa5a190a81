package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/admin/submission"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/sbatch"
	serverplan "github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutPlan = `plan shows how the bridge submits a bundle, and submits nothing: sbatch's command line, the batch
script, and when Slurm would start the job by its present plan (sbatch --test-only). That question
costs Slurm's controller as much as a submission.

BUNDLE is as for cl-bridge explain. It may also be the UUID of a bundle that the bridge has not
claimed: the server is asked for that. Without BUNDLE the flags --request-… describe a run, as those
of cl run do.

Exit codes: 0 Slurm takes it, or has its job; 1 the bridge or Slurm refuses it; 2 the command line or
the configuration is wrong; 3 Slurm, the server or the ledger's server does not answer.`

func planCommand(p program.Process) *cobra.Command {
	s := &site{Process: p}
	cmd := &cobra.Command{
		Use: "plan [BUNDLE]", Short: "Show how a bundle is submitted, and submit nothing", Long: aboutPlan,
		Args: program.WrongUsage(cobra.MaximumNArgs(1)), ValidArgsFunction: s.completeBundles,
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := requested(cmd.Flags())
			switch {
			case err != nil:
				return program.Usage(err)
			case len(args) > 0 && len(request) > 0:
				return program.Usage(errors.New("name a bundle, or describe a run by --request-…, but not both"))
			}
			if err := s.read(); err != nil {
				return err
			}
			return s.plan(cmd.Context(), strings.Join(args, ""), request)
		},
	}
	for _, k := range codalab.MetadataKeys(codalab.TypeRun) {
		switch {
		case !strings.HasPrefix(k.Key, requestPrefix):
		case k.Type == codalab.TypeInt:
			cmd.Flags().Int64(flagOf(k.Key), 0, k.Help)
		case k.Type != codalab.TypeBool:
			cmd.Flags().String(flagOf(k.Key), "", k.Help)
		}
	}
	configFlag(cmd, &s.flags.config)
	ledgerFlag(cmd, &s.flags.ledger)
	jsonFlag(cmd, &s.json)
	return cmd
}

const requestPrefix = "request_"

func flagOf(key string) string { return strings.ReplaceAll(key, "_", "-") }

// requested returns the metadata that the flags --request-… describe; empty if there are none.
func requested(flags *pflag.FlagSet) (codalab.Metadata, error) {
	m := codalab.Metadata{}
	flags.Visit(func(f *pflag.Flag) {
		key := strings.ReplaceAll(f.Name, "-", "_")
		if !strings.HasPrefix(key, requestPrefix) {
			return
		}
		m[key] = f.Value.String()
		if n, err := flags.GetInt64(f.Name); err == nil {
			m[key] = n
		}
	})
	return m, codalab.CheckMetadata(codalab.TypeRun, m, false)
}

// plan shows the submission of a bundle, or of a run with these requests if none is named.
func (s *site) plan(ctx context.Context, bundle string, request codalab.Metadata) error {
	if err := diskspace.Answers(ctx, s.Shared); err != nil {
		return err
	}
	planned, err := s.rowToPlan(ctx, bundle, request)
	if _, ok := errors.AsType[*heartbeat.AmbiguousError](err); ok {
		return program.Usage(err)
	}
	if err != nil {
		return err
	}
	workers, err := sharedfiles.FindWorkers(s.Config, spool.Layout(s.Shared))
	if err != nil {
		return program.Usage(err)
	}
	slurm, policy := slurmClient(s.Process, s.Config), assembly.Policy(s.Config, planned.bridge, workers)
	found, err := submission.Of(ctx, slurm, policy, learnLimits(ctx, slurm, policy), planned.row, planned.shared, planned.generation, s.Now())
	if printing := s.print(found, found.Text(err)); printing != nil || err != nil {
		return errors.Join(printing, err)
	}
	if found.Refusal != "" {
		return &program.Error{Code: program.ExitFailure}
	}
	return nil
}

// learnLimits returns the limits of Slurm's QOS and associations; nil if Slurm does not tell them.
func learnLimits(ctx context.Context, slurm *sbatch.Client, p plan.Policy) plan.Limits {
	settings, err := slurm.Settings(ctx)
	if err != nil {
		return nil
	}
	limits, _ := doctor.LearnLimits(ctx, slurm, settings, doctor.LocalUser(), p) // without their use, if that is hidden
	return limits
}

// planned is a row to submit, with the submission that it shares, the id of the bridge and the last generation of its ledger.
type planned struct {
	bridge     string
	generation int64
	row        plan.Row
	shared     *plan.Submission // nil for none
}

// rowToPlan returns the row to submit.
func (s *site) rowToPlan(ctx context.Context, bundle string, request codalab.Metadata) (p planned, err error) {
	r, err := ledger.OpenToRead(ctx, s.Ledger)
	if errors.Is(err, ledger.ErrAbsent) && (bundle == "" || codalab.IsUUID(bundle)) {
		p.bridge = "000000"
		p.row, err = s.unclaimed(ctx, bundle, request)
		return p, err
	}
	if err != nil {
		return p, s.absent(ctx, err, "no bridge has made a ledger at "+s.Ledger+" yet")
	}
	defer r.Close()
	if p.bridge, err = r.Bridge(ctx); err == nil {
		p.generation, err = r.Generation(ctx)
	}
	if err != nil {
		return p, err
	}
	if bundle != "" {
		if bundle, err = heartbeat.FindBundle(ctx, r, ledger.Name(s.Ledger), bundle); err != nil {
			return p, err
		}
		p.row, err = r.Row(ctx, bundle)
	}
	switch {
	case bundle == "" || errors.Is(err, ledger.ErrAbsent):
		p.row, err = s.unclaimed(ctx, bundle, request)
	case err == nil && p.row.Shared && p.row.InFlight():
		p.shared, err = sharedBy(ctx, r, p.row)
	}
	return p, err
}

// sharedBy returns the submission that a row shares; nil if the ledger does not have it.
func sharedBy(ctx context.Context, r *ledger.Reader, row plan.Row) (*plan.Submission, error) {
	all, err := r.Submissions(ctx)
	for i := range all {
		if all[i].Name == row.SubmissionName {
			return &all[i], err
		}
	}
	return nil, err
}

// unclaimed returns the row that an offer of a bundle would make: of one that the server has, or of one with these
// requests if none is named.
func (s *site) unclaimed(ctx context.Context, bundle string, request codalab.Metadata) (plan.Row, error) {
	run := codalab.RunBundle{Type: codalab.TypeRun, Metadata: request}
	if bundle != "" {
		cl, err := newClient(s.Config, nil, nil)
		if err != nil {
			return plan.Row{}, program.Usage(err)
		}
		b, err := cl.Bundle(ctx, bundle, client.IncludeOwner)
		if err != nil {
			return plan.Row{}, err
		}
		if b.Type != codalab.TypeRun {
			return plan.Row{}, fmt.Errorf("bundle %s is a %s, and only runs are submitted", bundle, b.Type)
		}
		run.UUID, run.Metadata = b.UUID, b.Metadata
		if b.Owner != nil {
			run.OwnerID = b.Owner.ID
		}
	}
	queue, err := s.queueFor(run.Metadata.String("request_queue"))
	if err != nil {
		return plan.Row{}, err
	}
	resources := serverplan.Site{}.Resources(run.Metadata)
	return plan.NewRow(s.Now(), queue, codalab.Message{Type: codalab.MessageRun, Bundle: &run, Resources: &resources}), nil
}

// queueFor returns the queue that takes runs with this request_queue (codalab/server/bundle_manager.py).
func (s *site) queueFor(tag string) (string, error) {
	tag = strings.TrimPrefix(tag, "tag=")
	queues := s.Plan()
	var tags []string
	for _, name := range s.QueueNames() {
		if q := queues[name]; q.Tag == tag && tag != "" || q.Default && tag == "" {
			return name, nil
		}
		tags = append(tags, queues[name].Tag)
	}
	if tag == "" {
		return "", program.Usage(fmt.Errorf("no queue of this bridge takes runs that name none: set --request-queue to one of %s", strings.Join(tags, ", ")))
	}
	return "", program.Usage(fmt.Errorf("no queue of this bridge has the tag %q: it has %s", tag, strings.Join(tags, ", ")))
}
