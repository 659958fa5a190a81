package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/status"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutExplain = `explain prints a bundle's phase, its reason and its beginning, the cause of a wait, and
the bridge's earlier decisions about it. It reads the bridge's ledger, whether the bridge
runs or not; on a host that cannot read the ledger's file it asks the running bridge,
which answers within some seconds. The history of a bundle that the bridge has forgotten
stays for keep_history, by default 14 days.

BUNDLE is a bundle's UUID or the beginning of it, such as 0x1a2b; the id of a job that it has or had, such
as 4711; or its name. It has to name one bundle only. The shell completes UUIDs.`

func explainCommand(p program.Process) *cobra.Command {
	s := &site{Process: p}
	cmd := &cobra.Command{
		Use: "explain BUNDLE", Short: "Show a bundle's phase, and its reason", Long: aboutExplain,
		Args:              program.WrongUsage(cobra.ExactArgs(1)),
		RunE:              func(cmd *cobra.Command, args []string) error { return s.explain(cmd.Context(), args[0]) },
		ValidArgsFunction: s.completeBundles,
	}
	configFlag(cmd, &s.flags.config)
	ledgerFlag(cmd, &s.flags.ledger)
	jsonFlag(cmd, &s.json)
	return cmd
}

func (s *site) explain(ctx context.Context, bundle string) error {
	e, err := s.explained(ctx, bundle)
	if err != nil {
		return err
	}
	return s.print(e, status.ExplanationText(e, s.Now()))
}

// explained explains the bundle that an argument names.
func (s *site) explained(ctx context.Context, bundle string) (heartbeat.Explanation, error) {
	e, err := s.explanation(ctx, bundle)
	if _, ok := errors.AsType[*heartbeat.AmbiguousError](err); ok {
		return e, program.Usage(err)
	}
	return e, err
}

// explanation explains a bundle from the ledger, or asks the bridge if the ledger is on another
// host.
func (s *site) explanation(ctx context.Context, bundle string) (heartbeat.Explanation, error) {
	r, name, err := s.openLedger(ctx)
	if state, ok := s.elsewhere(ctx, err); ok {
		return heartbeat.Ask(ctx, spool.Layout(s.Shared), state, bundle)
	}
	if err != nil {
		return heartbeat.Explanation{}, s.absent(ctx, err, fmt.Sprintf("no bridge has made a ledger at %s yet", name))
	}
	defer r.Close()
	uuid, err := heartbeat.FindBundle(ctx, r, name, bundle)
	if err != nil {
		return heartbeat.Explanation{}, err
	}
	return heartbeat.Explain(ctx, r, name, uuid)
}

// openLedger opens the ledger, which a bridge may be using, and returns its name, too. With
// --ledger it reads no configuration, because explain needs nothing else from it.
func (s *site) openLedger(ctx context.Context) (*ledger.Reader, string, error) {
	var err error
	if s.flags.ledger == "" {
		err = s.read()
	} else {
		s.Ledger, err = ledgerPlace(s.Process, s.Config, s.flags.ledger)
	}
	if err != nil {
		return nil, "", err
	}
	r, err := ledger.OpenToRead(ctx, s.Ledger)
	return r, sqldb.Name(s.Ledger), err
}

// completeBundles completes the UUID of a bundle as the only argument.
func (s *site) completeBundles(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.completeBundle(cmd.Context(), typed), cobra.ShellCompDirectiveNoFileComp
}

// completeBundle returns the bundles whose UUIDs begin with the typed characters.
func (s *site) completeBundle(ctx context.Context, typed string) []string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, _, err := s.openLedger(ctx)
	if err != nil {
		return nil
	}
	defer r.Close()
	bundles, err := status.Complete(ctx, r, typed)
	if err != nil {
		return nil
	}
	return bundles
}
